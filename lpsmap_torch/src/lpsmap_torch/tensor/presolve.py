"""Presolve: numbers that the constraints fix, and constraints that always hold.

With fixed numbers there is no strictly feasible point, and an interior point method has no central
path to follow.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["forced_numbers"]

ROUNDS = 8
"""Number of rounds of propagation."""

SLACK = 1e-12
"""Sums whose range is smaller than this are treated as fixed."""

Halves = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
"""Products with the positive, and with the negative entries of a matrix."""


def forced_numbers(
    sums: Halves, pulls: Halves, bounds: tuple[Tensor, Tensor], open_: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return ``low, high, open, fixed`` with forced numbers fixed and redundant bounds removed.

    If the least value of a sum is the largest that its bound allows, the sum fixes its numbers at
    that value; likewise for its largest value. Bounds that a sum cannot violate are removed.
    Infeasible instances are returned unchanged.

    Parameters
    ----------
    sums, pulls
        Products ``A x`` and ``A' y`` with the two halves of the matrix.
    bounds
        (n, n_rows) lower and upper bounds.
    open_
        (n, n_x) flags of the numbers between 0 and 1; the others are 0.
    """
    (raised, lowered), (raising, lowering), (low, high) = sums, pulls, bounds
    most = open_.to(low.dtype)
    least, consistent = torch.zeros_like(most), torch.ones_like(open_[:, :1])
    for _ in range(ROUNDS):
        smallest = raised(least) + lowered(most)
        largest = raised(most) + lowered(least)
        low_holds, high_holds = smallest >= low - SLACK, largest <= high + SLACK
        at_least, at_most = smallest >= high - SLACK, largest <= low + SLACK
        possible = (smallest <= high + SLACK) & (largest >= low - SLACK)
        consistent = consistent & possible.all(-1, keepdim=True)
        fixed_low, fixed_high = at_least.to(most.dtype), at_most.to(most.dtype)
        down = raising(fixed_low) - lowering(fixed_high) > 0.0
        up = raising(fixed_high) - lowering(fixed_low) > 0.0
        least, most = torch.where(up, most, least), torch.where(down, least, most)
    return (
        torch.where(consistent & low_holds, -torch.inf, low),
        torch.where(consistent & high_holds, torch.inf, high),
        torch.where(consistent, least < most, open_),
        torch.where(consistent, least, torch.zeros_like(least)),
    )
