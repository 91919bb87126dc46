"""Variables that the constraints leave no choice.

Where they have none, nothing lies strictly within the bounds, and an interior point method has no
path to follow.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lpsmap_torch.tensor.batches import Batch

__all__ = ["forced_variables"]

ROUNDS = 8
"""How often what was found is used to find more."""

SLACK = 1e-12
"""Sums that can move by less than this cannot move."""


def forced_variables(batch: Batch, open_: Tensor) -> tuple[Tensor, Tensor]:
    """Return which variables are open, and what the others are.

    A sum whose least value is all that its bound allows holds its variables where they are then,
    and likewise for the largest. Instances that contradict themselves stay as they are given.

    Parameters
    ----------
    batch
        The constraints.
    open_
        (n, n_variables) whether a variable may be other than zero.
    """
    raises = batch._replace(matrix=batch.matrix.clamp(min=0.0))
    lowers = batch._replace(matrix=batch.matrix.clamp(max=0.0))
    most = open_.to(batch.matrix.dtype)
    least, consistent = torch.zeros_like(most), torch.ones_like(open_[:, :1])
    for _ in range(ROUNDS):
        smallest = raises.sums(least) + lowers.sums(most)
        largest = raises.sums(most) + lowers.sums(least)
        possible = (smallest <= batch.high + SLACK) & (largest >= batch.low - SLACK)
        consistent = consistent & possible.all(-1, keepdim=True)
        at_least = (smallest >= batch.high - SLACK).to(least.dtype)
        at_most = (largest <= batch.low + SLACK).to(least.dtype)
        down = raises.pull(at_least) - lowers.pull(at_most) > 0.0
        up = raises.pull(at_most) - lowers.pull(at_least) > 0.0
        least, most = torch.where(up, most, least), torch.where(down, least, most)
    moves = torch.where(consistent, least < most, open_)
    return moves, torch.where(consistent, least, 0.0)
