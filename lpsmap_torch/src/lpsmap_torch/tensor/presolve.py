"""Presolve: numbers that the constraints fix, and constraints that always hold.

With fixed numbers there is no strictly feasible point, and an interior point method has no central
path to follow.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from lpsmap_torch.tensor.batch import Batch

ROUNDS = 8
"""Number of rounds of propagation."""

SLACK = 1e-12
"""Sums whose range is smaller than this are treated as fixed."""


def forced_numbers(batch: Batch, open_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return ``low, high, open, fixed`` with forced numbers fixed and redundant bounds removed.

    If the least value of a sum is the largest that its bound allows, the sum fixes its numbers at
    that value; likewise for its largest value. Bounds that a sum cannot violate are removed.
    Infeasible instances are returned unchanged.
    Numbers that are not in `open_`, (n, n_x) flags, are 0.
    """
    low, high, matrix = batch.low, batch.high, batch.matrix
    positive = dataclasses.replace(batch, matrix=matrix.clamp(min=0.0))
    negative = dataclasses.replace(batch, matrix=matrix.clamp(max=0.0))
    most = open_.to(low.dtype)
    least, consistent = torch.zeros_like(most), torch.ones_like(open_[:, :1])
    for _ in range(ROUNDS):
        smallest = positive.sums(least) + negative.sums(most)
        largest = positive.sums(most) + negative.sums(least)
        low_holds, high_holds = smallest >= low - SLACK, largest <= high + SLACK
        at_least, at_most = smallest >= high - SLACK, largest <= low + SLACK
        possible = (smallest <= high + SLACK) & (largest >= low - SLACK)
        consistent = consistent & possible.all(-1, keepdim=True)
        fixed_low, fixed_high = at_least.to(most.dtype), at_most.to(most.dtype)
        down = positive.pull(fixed_low) - negative.pull(fixed_high) > 0.0
        up = positive.pull(fixed_high) - negative.pull(fixed_low) > 0.0
        least, most = torch.where(up, most, least), torch.where(down, least, most)
    return (
        torch.where(consistent & low_holds, -torch.inf, low),
        torch.where(consistent & high_holds, torch.inf, high),
        torch.where(consistent, least < most, open_),
        torch.where(consistent, least, torch.zeros_like(least)),
    )
