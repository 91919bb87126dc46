"""
Alignments, drawn as in the papers
==================================

Figure 5 of the SparseMAP paper (Niculae et al. 2018) and Figure 4 of the LP-SparseMAP paper
(Niculae & Martins 2020). **Near**: the same drawings, but of scores that are made by hand, where
the papers draw trained networks. They show what each layer does with the same scores.
:doc:`The papers' results </results/papers>` have the alignments of trained networks.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from lpsmap_torch.layers import LPSequenceAttention, MatchingAttention, SequenceAttention

premise = ["a", "woman", "in", "a", "red", "coat", "reads", "a", "long", "letter"]
hypothesis = ["a", "woman", "reads", "the", "letter"]
related = {("a", "the"): 1.5, ("coat", "letter"): 1.2, ("long", "letter"): 1.5, ("in", "the"): 0.8}
scores = torch.tensor(
    [[3.0 if p == h else related.get((p, h), 0.0) for h in hypothesis] for p in premise]
)

# %%
# Softmax gives weight to every pair, in either direction. A sequence gives a word to every word,
# and prefers steps to the next word; a matching gives each word away at most once, so that both
# directions are the same. Their sparse weights are those of a few structures.


def shared(attention, scores):
    """Return the weights of a layer, and the structures that share them."""
    solution = attention(scores, return_solution=True)
    [structures] = solution.structures()
    return solution.marginals.detach(), structures


def sequences(scores):
    """Return the weights of every row, and the sequences that share them."""
    attention = SequenceAttention()
    attention.distances.data = torch.tensor([-0.6, -0.3, 0.3, 0.5, -0.3])  # -2 or less to 2 or more
    return shared(attention, scores)


rows, paths = sequences(scores)
columns, other_paths = sequences(scores.T)
weights, matchings = shared(MatchingAttention(), scores)

# %%
# Upper panels: the weights of a column sum to one; lower panels: those of a row. A border marks the
# pairs with weight under softmax, lines the selected sequences, and circles of different sizes the
# selected matchings, all as thick as their weight.


def show(ax, weights, title):
    """Draw weights of pairs of words."""
    ax.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=1)
    ax.set_xticks(range(len(hypothesis)), hypothesis, rotation=60)
    ax.set_yticks(range(len(premise)), premise)
    ax.set_title(title)


def border(ax, weights):
    """Mark the pairs that have weight."""
    for i, j in np.argwhere(weights.numpy() > 0):
        ax.add_patch(plt.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="0.4", lw=0.6))


def overlay(ax, paths, *, turned):
    """Draw sequences as paths."""
    for path in paths:
        at = np.argwhere(path.variables > 0.5)
        y, x = at.T[::-1] if turned else at.T
        ax.plot(x, y, "C1", lw=4 * path.probability)


figure, axes = plt.subplots(2, 3, figsize=(8.4, 7.6), layout="constrained")
for ax, axis in zip(axes[:, 0], (0, 1), strict=True):
    dense = scores.softmax(axis)
    show(ax, dense, f"softmax of {'columns' if axis == 0 else 'rows'}")
    border(ax, dense)
show(axes[0, 1], columns.T, "sequences over columns")
overlay(axes[0, 1], other_paths, turned=True)
show(axes[1, 1], rows, "sequences over rows")
overlay(axes[1, 1], paths, turned=False)
show(axes[0, 2], weights, "matchings")
for k, matching in enumerate(matchings):
    y, x = np.argwhere(matching.variables > 0.5).T
    size = 40 * (k + 1)
    axes[0, 2].scatter(x, y, s=size, facecolor="none", edgecolor="C1", lw=4 * matching.probability)
axes[1, 2].axis("off")

# %%
# LP-SparseMAP's sequences use a word once on average, and have one score for a step to a neighbour.
# With the scores that the paper reports, 1.6 on SNLI and 2.5 on MultiNLI, neighbours go to
# neighbours; with 0, which is what our networks learn, nothing asks for that.

figure, axes = plt.subplots(1, 4, figsize=(10.5, 4.2), layout="constrained")
show(axes[0], scores.softmax(1), "softmax")
for ax, transition in zip(axes[1:], (0.0, 1.6, 2.5), strict=True):
    attention = LPSequenceAttention()
    attention.transition.data.fill_(transition)
    show(ax, attention(scores).detach(), f"LP-sequence, {transition}")
