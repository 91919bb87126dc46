"""
Loss: a random field from labels with gaps
==========================================

A conditional random field over trees learns by :class:`~lpsmap_torch.losses.CRFLoss` when nine of
ten heads are unlabelled: these are marginalised. The trees are non-projective, so the sums are
determinants.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from lpsmap import DepTree, TorchFactorGraph
from lpsmap_torch.losses import CRFLoss

rng = np.random.default_rng(0)
torch.manual_seed(0)

# %%
# Every word is of one of six kinds, and every kind has a head kind, except the root: the head of a
# word is the nearest word of that kind. Only such sentences are sampled.

HEAD = np.array([0, 0, 0, 1, 1, 2])  # kind 0 is attached to the root


def sentence():
    """Return the kinds of seven words, and their heads."""
    kinds = np.append(0, rng.integers(1, 6, size=6))
    rng.shuffle(kinds)
    heads = np.arange(7)
    for m, kind in enumerate(kinds):
        if kind:
            there = np.flatnonzero(kinds == HEAD[kind])
            if not len(there):
                return sentence()
            heads[m] = there[np.abs(there - m).argmin()]
    return kinds, heads


def batch(size: int, known: float):
    """Return kinds and heads, -100 for unlabelled heads."""
    kinds, heads = (np.stack(x) for x in zip(*(sentence() for _ in range(size)), strict=True))
    heads = np.where(rng.random(heads.shape) < known, heads, -100)
    return torch.from_numpy(kinds), torch.from_numpy(heads)


# %%
# A score for every pair of kinds, and one for every distance.


class Arcs(torch.nn.Module):
    """Arc scores (batch, modifier, head), those from the root on the diagonal."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = torch.nn.Parameter(torch.zeros(6, 6))
        self.root = torch.nn.Parameter(torch.zeros(6))
        self.apart = torch.nn.Parameter(torch.zeros(7))

    def forward(self, kinds):
        """Return the scores of sentences."""
        places = torch.arange(kinds.shape[1])
        scores = self.kinds[kinds[:, :, None], kinds[:, None, :]]
        scores = scores + self.apart[(places - places[:, None]).abs()]
        is_root = torch.eye(len(places), dtype=torch.bool)
        return torch.where(is_root, self.root[kinds][:, :, None], scores)


def full_lengths(kinds):
    """Return the number of words of every sentence."""
    return torch.full(kinds.shape[:1], kinds.shape[1])


def train(known: float):
    """Return a model and the attachment accuracies of its training."""
    model, criterion = Arcs(), CRFLoss(DepTree)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    curve = []
    for _ in range(60):
        kinds, heads = batch(8, known)
        # the last words of a sentence may be unlabelled, and are no padding
        loss = criterion(model(kinds), heads, root="self", lengths=full_lengths(kinds))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = marginals(model, test_kinds).argmax(-1)
        curve.append((found == test_heads).float().mean().item())
    return model, curve


def marginals(model, kinds):
    """Return the probabilities of all arcs."""
    graph = TorchFactorGraph()
    factor = graph.add(DepTree(graph.variable_from(model(kinds).detach())))
    return graph.gibbs(factor).marginals


test_kinds, test_heads = batch(50, 1.0)
trained = {known: train(known) for known in (1.0, 0.1)}

# %%
# Left: with gaps, training takes longer. Right: the probabilities of the arcs of a new sentence;
# dots are the true heads.

figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
for known, (_, curve) in trained.items():
    axes[0].plot(curve, label=f"{known:.0%} of the heads known")
axes[0].set(xlabel="update", title="Right heads", ylim=(0, 1.02))
axes[0].legend(loc="lower right")
(table,) = marginals(trained[0.1][0], test_kinds[:1]).numpy()
image = axes[1].imshow(table, cmap="Blues", vmin=0, vmax=1)
axes[1].plot(test_heads[0], range(7), "o", color="#d55e00")
axes[1].set(xlabel="head (the diagonal: root)", ylabel="word", title="Trained with gaps")
figure.colorbar(image, ax=axes[1])
