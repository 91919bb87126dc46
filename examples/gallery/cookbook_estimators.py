"""
Cookbook: a latent tree, by every estimator
===========================================

Predict a property of the head of each word, when the heads are not given. The same network is
trained with every estimator of a latent tree: sparse and dense marginals, the best tree with three
surrogate gradients, samples, and perturbations.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.estimators import MAP
from lpsmap_torch.layers import LatentTree

n, size, n_colours, batch = 6, 6, 4, 24

# %%
# Every word refers to its head by the sign of the head, under an unknown rotation and noise. Every
# word has a colour, and the network predicts the colour of the head; that of the root is its own.
# The trees are drawn at random: samples of a layer whose scores are all zero.


def sentences(generator, unknown):
    """Return the signs of words, their references to heads, colours, and the heads."""
    tree = LatentTree(projective=True, single_root=True)
    heads = tree.sample(torch.zeros(batch, n, n), generator=generator).values[0].argmax(-1)
    signs = torch.randn(batch, n, size, generator=generator)
    said = signs.gather(1, heads[..., None].expand(-1, -1, size)) @ unknown
    is_root = heads == torch.arange(n)
    said = torch.where(is_root[..., None], torch.ones(size), said)
    said = said + 0.4 * torch.randn(said.shape, generator=generator)
    return signs, said, torch.randint(n_colours, (batch, n), generator=generator), heads


# %%
# A curve is the share of heads in the best tree that are right. During training the estimator
# decides what the reader of the tree sees, and which gradient the scores get.


def train(estimator, seed=0, steps=100):
    """Return the shares of right heads, and the last trees as the estimator gives them."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    unknown = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
    tree = LatentTree(projective=True, single_root=True, estimator=estimator)
    match, root = nn.Linear(size, size, bias=False), nn.Linear(size, 1)
    optimizer = torch.optim.Adam([*match.parameters(), *root.parameters()], lr=0.01)
    curve = []
    for _ in range(steps):
        signs, said, colours, heads = sentences(generator, unknown)
        scores = torch.where(torch.eye(n).bool(), root(said), match(said) @ signs.mT)
        arcs = tree(scores)
        told = arcs @ nn.functional.one_hot(colours, n_colours).float()
        target = nn.functional.one_hot(colours.gather(1, heads), n_colours)
        loss = (told - target).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        best = tree.decode(scores.detach()).argmax(-1)
        curve.append((best == heads).float().mean().item())
    return curve, arcs.detach()


estimators = {
    "sample": "sample",
    "perturb": "perturb",
    "map, identity": MAP("identity"),
    "map, SPIGOT": MAP("spigot"),
    "map, straight-through": "map",
    "marginals": "marginals",
    "sparsemap": "sparsemap",
}
trained = {name: train(estimator) for name, estimator in estimators.items()}

# %%
# What is seen
# ------------
#
# On this task all estimators find the trees. They differ in how fast they learn: perturbations are
# the slowest, with other seeds, too, and SPIGOT loses some heads again with a few of them. And they
# differ in what the reader sees: marginals are dense, those of SparseMAP are sparse, and the others
# are trees.

figure, panels = plt.subplot_mosaic("AA;BC", figsize=(5.6, 4.4), layout="constrained")
axes = list(panels.values())
for name, (curve, _) in trained.items():
    smooth = torch.tensor(curve).unfold(0, 10, 1).mean(-1)
    axes[0].plot(smooth.tolist(), label=f"{name}: {smooth[-1]:.0%}")
axes[0].set(xlabel="step", title="right heads, mean of ten steps", ylim=(0, 1.02))
axes[0].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
for ax, name in zip(axes[1:], ["marginals", "sparsemap"], strict=True):
    ax.imshow(trained[name][1][0].numpy(), cmap="Blues", vmin=0, vmax=1)
    ax.set(title=name, xlabel="head", ylabel="word")
