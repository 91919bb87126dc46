"""
Cookbook: word alignments
=========================

Given sentences whose words are aligned with those of their translations, learn to align new ones.
Words repeat, so that similarity alone leaves several partners; a matching uses every word at most
once.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import LPMatchingAttention
from lpsmap_torch.losses import SparseMAPLoss

n_words, m, n, batch, steps = 6, 6, 8, 24, 80

# %%
# A target translates six of eight source words, nearly in their order. Only six different words
# occur.


def pairs(generator, dictionary):
    """Return sources, targets, and the source place of every target word."""
    source = torch.randint(n_words, (batch, n), generator=generator)
    kept = torch.rand(batch, n, generator=generator).argsort(1)[:, :m].sort(1).values
    moved = (torch.arange(m) + 0.7 * torch.randn(batch, m, generator=generator)).argsort(1)
    order = kept.gather(1, moved)
    return source, dictionary[source.gather(1, order)], order


# %%
# The scores of a pair are those of its words and of its distance. Two models are compared: each
# target word chooses for itself, by cross-entropy; or all choose together, by the SparseMAP loss of
# a layer, which also decodes.


class Scores(nn.Module):
    """Scores (batch, target, source)."""

    def __init__(self):
        super().__init__()
        self.alike = nn.Parameter(torch.zeros(n_words, n_words))
        self.distance = nn.Parameter(torch.zeros(m + n - 1))

    def forward(self, source, target):
        """Return the scores of pairs."""
        apart = torch.arange(n) - torch.arange(m)[:, None] + m - 1
        return self.alike[target[:, :, None], source[:, None, :]] + self.distance[apart]


def cross_entropy(scores, order):
    """Return the loss of words that choose for themselves."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), order.flatten())


def train(criterion, decode, seed=0):
    """Return the shares of right partners of new batches, and the last batch."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    dictionary = torch.randperm(n_words, generator=generator)
    model = Scores()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    curve = []
    for _ in range(steps):
        source, target, order = pairs(generator, dictionary)
        scores = model(source, target)
        loss = criterion(scores, order)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append((decode(scores.detach()) == order).float().mean().item())
    return curve, scores.detach(), order


matching = SparseMAPLoss(LPMatchingAttention())
models = {
    "each for itself": (cross_entropy, lambda scores: scores.argmax(-1)),
    "matching": (matching, lambda scores: matching.decode(scores).argmax(-1)),
}
trained = {name: train(*model) for name, model in models.items()}

# %%
# What is seen
# ------------
#
# Words that choose for themselves share a partner. Below, the marginals of the matching for
# a new pair of sentences are sparse: a few alignments share the probability. Circles are the truth.

figure, panels = plt.subplot_mosaic("AA;BC", figsize=(5.6, 4.4), layout="constrained")
axes = list(panels.values())
for (name, (curve, scores, order)), color, ax in zip(
    trained.items(), ["#999999", "#0072b2"], axes[1:], strict=True
):
    print(f"{name}: {sum(curve[-20:]) / 20:.0%} of the partners are right")
    smooth = torch.tensor(curve).unfold(0, 5, 1).mean(-1)
    axes[0].plot(smooth.tolist(), color=color, label=name)
    weights = scores.softmax(-1) if name != "matching" else matching.factors(scores)
    ax.imshow(weights[0].numpy(), cmap="Blues", vmin=0, vmax=1)
    ax.plot(order[0].tolist(), range(m), "o", color="#d55e00", markerfacecolor="none", markersize=9)
    ax.set(title=name, xlabel="source", ylabel="target")
axes[0].set(xlabel="update", title="right partners, mean of five updates", ylim=(0, 1.02))
axes[0].legend(frameon=False)
