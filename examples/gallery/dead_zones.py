"""
Dead zones: when a matching does not learn
==========================================

Words that may have no partner have none while their scores are below zero, and then no gradient
either. Where that happens, and the ways out.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from lpsmap_torch.layers import MatchingAttention
from lpsmap_torch.losses import SparseMAPLoss

# %%
# Let all scores of three rows and four columns be equal. Below the score of no partner, zero here,
# all weights are zero and so is the gradient of any loss of the weights. At high scores the weights
# sum to 1 in every row, and do not move together any more. A learned score of no partner,
# ``null=True``, that starts at -1 shifts the dead zone to the left.

levels = torch.linspace(-2.0, 2.0, 41)
free, shifted = MatchingAttention(full="none"), MatchingAttention(null=-1.0)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for layer, name in ((free, "null 0"), (shifted, "null -1")):
    scores = levels[:, None, None].expand(-1, 3, 4).clone().requires_grad_()
    weights = layer(scores)
    weights[:, 0, 0].sum().backward()
    left.plot(levels, weights.detach().sum((-2, -1)), label=name)
    right.plot(levels, scores.grad.flatten(1).norm(dim=1), label=name)
left.set(xlabel="all scores", ylabel="sum of the weights")
right.set(xlabel="all scores", ylabel="size of the gradient")
left.legend()
plt.show()

# %%
# Rows and columns are vectors; three of five rows have a noisy copy among seven columns. The scores
# of a new model are all -0.5. Its task is to find the copies.

rows, columns, size, batch, steps = 5, 7, 8, 16, 50


def examples(generator):
    """Return rows, columns, and which pairs are copies."""
    x, y = (torch.randn(batch, n, size, generator=generator) for n in (rows, columns))
    gold = torch.zeros(batch, rows, columns)
    for item in range(batch):
        chosen = torch.randperm(rows, generator=generator)[:3]
        copies = torch.randperm(columns, generator=generator)[:3]
        y[item, copies] = x[item, chosen] + 0.2 * torch.randn(3, size, generator=generator)
        gold[item, chosen, copies] = 1.0
    return x, y, gold


class Scores(nn.Module):
    """Scores of pairs, -0.5 at first."""

    def __init__(self):
        super().__init__()
        self.alike = nn.Parameter(torch.zeros(size, size))
        self.constant = nn.Parameter(torch.tensor(-0.5))

    def forward(self, x, y):
        """Return (batch, rows, columns)."""
        return x @ self.alike @ y.mT + self.constant


def squared_error(layer):
    """Return the loss of a layer's weights."""
    return lambda scores, gold: (layer(scores) - gold).square().sum((-2, -1)).mean()


def train(layer, criterion, change=None):
    """Return the shares of rows whose partner, or its absence, is right."""
    generator, model, shares = torch.Generator().manual_seed(0), Scores(), []
    parameters = [*model.parameters(), *layer.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    for step in range(steps):
        if change is not None:
            change(step)
        x, y, gold = examples(generator)
        scores = model(x, y)
        shares.append(float((layer.decode(scores) == gold).all(-1).float().mean()))
        optimizer.zero_grad()
        criterion(scores, gold).backward()
        optimizer.step()
    return shares


# %%
# The squared error of the weights does not move. It does with a learned score of no partner that
# starts below the scores; and with noise on the scores in the first half, by the estimator
# ``"perturb"``. The SparseMAP loss compares with the target, and has no dead zone at all. For types
# with sums over structures, as trees and sequences have, the estimator ``"marginals"`` is positive
# everywhere, and serves in place of noise.

dead, learned, noisy = (MatchingAttention(null=null) for null in (0.0, True, 0.0))
nn.init.constant_(learned.null, -1.0)


def begin_with_noise(step):
    """Perturb in the first half."""
    torch.manual_seed(step)
    noisy.estimator = "perturb" if step < steps // 2 else "sparsemap"


runs = {
    "squared error": train(dead, squared_error(dead)),
    "null=True, from -1": train(learned, squared_error(learned)),
    "noise at first": train(noisy, squared_error(noisy), begin_with_noise),
    "SparseMAPLoss": train(dead, SparseMAPLoss(dead)),
}
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, shares in runs.items():
    axes.plot(shares, label=name)
    print(f"{name}: {sum(shares[-10:]) / 10:.2f}")
axes.set(xlabel="step", ylabel="rows that are right", ylim=(0, 1.02))
axes.legend(loc="lower right")
plt.show()

# %%
# The other dead zone is at large scores: one matching wins by far, and small changes leave it as it
# is. A higher temperature divides the scores. It does not help in the first dead zone, where scores
# below zero stay below zero.

large = 6.0 * torch.randn(64, rows, columns, generator=torch.Generator().manual_seed(0))
temperatures = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
moving = []
for temperature in temperatures:
    scores = large.clone().requires_grad_()
    weights = MatchingAttention(temperature=temperature)(scores)
    (
        weights * torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    ).sum().backward()
    moving.append(float(scores.grad.flatten(1).any(dim=1).float().mean()))
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(temperatures, moving, marker="o")
axes.set(xlabel="temperature", ylabel="instances with a gradient", xscale="log", ylim=(0, 1.05))
plt.show()
