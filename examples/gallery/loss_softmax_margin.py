"""
Loss: a margin that prefers recall
==================================

Spans of words are tagged from a noisy number for every word. With
:class:`~lpsmap_torch.losses.MarginCRFLoss`, a function of the labels sets what a missed word costs.
"""

import matplotlib.pyplot as plt
import torch

from lpsmap import Sequence
from lpsmap_torch.losses import MarginCRFLoss

torch.manual_seed(0)

# %%
# Words are in a span (tag 1) or not (tag 0), and a tag changes with probability 0.2.


def batch(size: int):
    """Return the numbers of sentences of twelve words, and their tags."""
    changes = torch.rand(size, 12) < 0.2
    tags = changes.cumsum(1) % 2
    return tags + 0.8 * torch.randn(size, 12), tags


def train(missed: float):
    """Return recall and precision if a missed word costs `missed`, and a superfluous one 1."""

    def cost(labels):
        """Of variables that are wrongly on: tag 0 on a word of tag 1 is a miss."""
        return torch.tensor([missed, 1.0]) * (1.0 - labels)

    model, steps = torch.nn.Linear(1, 2), torch.nn.Parameter(torch.zeros(2, 2))
    criterion = MarginCRFLoss(Sequence, cost=cost)
    optimizer = torch.optim.Adam([*model.parameters(), steps], lr=0.1)
    for _ in range(80):
        numbers, tags = batch(16)
        loss = criterion(model(numbers[..., None]), tags, transitions=steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    numbers, tags = test
    found = criterion.decode(model(numbers[..., None]), transitions=steps)[..., 1] > 0.5
    right = (found & (tags == 1)).sum()
    return (right / tags.sum()).item(), (right / found.sum()).item()


test = batch(200)
costs = [0.2, 0.5, 1.0, 2.0, 4.0]
recall, precision = zip(*(train(missed) for missed in costs), strict=True)

# %%
# The more a missed word costs, the more words the tagger finds, and the more of them are wrong.

figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
axis.semilogx(costs, recall, "o-", label="recall")
axis.semilogx(costs, precision, "o-", label="precision")
axis.set(xlabel="cost of a missed word", ylim=(0, 1.02))
axis.legend(loc="lower right")
