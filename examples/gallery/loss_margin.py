"""
Loss: a matching with a margin
==============================

Points are rotated and permuted, and a network learns the matching by
:class:`~lpsmap_torch.losses.MarginSparseMAPLoss`: a pair of the true matching must score better
than others by the cost of a mistake. Without a margin, the loss vanishes earlier.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap import AtMostOne, TorchFactorGraph, Xor
from lpsmap_torch.losses import MarginSparseMAPLoss, SparseMAPLoss

torch.manual_seed(0)


# %%
# Six points, rotated by 90 degrees and permuted; the network learns the rotation.


def batch(size: int):
    """Return points, the rotated and permuted points, and the permutation."""
    points = torch.randn(size, 6, 2)
    order = torch.argsort(torch.rand(size, 6))
    turned = torch.stack([-points[..., 1], points[..., 0]], dim=-1)
    turned = turned + 0.1 * torch.randn_like(turned)
    moved = torch.zeros_like(turned).scatter_(1, order[..., None].expand(-1, -1, 2), turned)
    return points, moved, order


class Matcher(nn.Module):
    """Scores (batch, 6, 6): the proximity of a point's image under a linear map."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(2, 2, bias=False)

    def forward(self, points, moved):
        """Return the scores of pairs."""
        return -3.0 * torch.cdist(self.map(points), moved)


# %%
# Every point has one partner, and none is shared: a function of variables that returns factors.


def matching(u):
    """Return the factors of a batch of matchings."""
    return [Xor(u), AtMostOne(u, axis=1)]


def train(criterion):
    """Return a matcher, and the losses and accuracies of its training."""
    torch.manual_seed(1)
    matcher = Matcher()
    optimizer = torch.optim.Adam(matcher.parameters(), lr=0.03)
    curve = []
    for _ in range(150):
        points, moved, order = batch(16)
        scores = matcher(points, moved)
        loss = criterion(scores, order)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append((loss.item(), (scores.argmax(-1) == order).float().mean().item()))
    return matcher, torch.tensor(curve).T


figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
trained = {}
for criterion in (SparseMAPLoss(matching), MarginSparseMAPLoss(matching, cost=0.5)):
    name = type(criterion).__name__
    trained[name], curve = train(criterion)
    for ax, values in zip(axes, curve, strict=True):
        ax.plot(values, label=name)
axes[0].set(xlabel="update", title="Loss of a batch", ylim=(0, None))
axes[1].set(xlabel="update", title="Right partners by score", ylim=(0, 1.02))
axes[1].legend()

# %%
# The marginals of a matching of new points, as the width of lines.

points, moved, _ = batch(1)
figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.4), layout="constrained")
for ax, (name, matcher) in zip(axes, trained.items(), strict=True):
    graph = TorchFactorGraph()
    u = graph.variable_from(matcher(points, moved).detach())
    for factor in matching(u):
        graph.add(factor)
    graph.solve()
    for i, j in (u.value[0] > 0.01).nonzero().tolist():
        ends = torch.stack([points[0, i], moved[0, j]]).T
        ax.plot(*ends, color="#0072b2", linewidth=3 * u.value[0, i, j].item())
    ax.plot(*points[0].T, "o", color="black")
    ax.plot(*moved[0].T, "s", color="#d55e00")
    ax.set(title=name, aspect="equal")
