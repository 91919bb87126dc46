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
    """Return the recall after every update if a missed word costs `missed`, and the last tags."""

    def cost(labels):
        """Of variables that are wrongly on: tag 0 on a word of tag 1 is a miss."""
        return torch.tensor([missed, 1.0]) * (1.0 - labels)

    model, steps = torch.nn.Linear(1, 2), torch.nn.Parameter(torch.zeros(2, 2))
    model.bias.data = torch.tensor([1.0, 0.0])  # at first, few words are tagged
    torch.nn.init.zeros_(model.weight)
    criterion = MarginCRFLoss(Sequence, cost=cost)
    optimizer = torch.optim.Adam([*model.parameters(), steps], lr=0.05)
    curve = []
    for _ in range(80):
        numbers, tags = batch(16)
        loss = criterion(model(numbers[..., None]), tags, transitions=steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        numbers, tags = test
        found = criterion.decode(model(numbers[..., None]), transitions=steps)[..., 1]
        curve.append((found * tags).sum().item() / tags.sum().item())
    return curve, found


test = batch(100)
trained = {missed: train(missed) for missed in (0.25, 4.0)}

# %%
# Left: the more a missed word costs, the more words are found. Right: the price is superfluous
# words, in rows of sentences: true spans, and those of both taggers.

figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
for missed, (curve, _) in trained.items():
    axes[0].plot(curve, label=f"a missed word costs {missed:g}")
axes[0].set(xlabel="update", title="Recall", ylim=(0, 1.02))
axes[0].legend(loc="lower right")
tables = [test[1][:20].float(), *(found[:20] for _, found in trained.values())]
axes[1].imshow(torch.cat(tables, 1).numpy(), cmap="Blues", aspect="auto")
for end in (11.5, 23.5):
    axes[1].axvline(end, color="#d55e00")
axes[1].set(xticks=[5.5, 17.5, 29.5], xticklabels=["true", "0.25", "4"], yticks=[], title="Spans")
