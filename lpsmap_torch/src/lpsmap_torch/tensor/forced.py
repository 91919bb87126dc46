"""Presolve: variables that the constraints fix, and constraints that always hold.

With fixed variables there is no strictly feasible point, and an interior point method has no
central path to follow.
"""

from __future__ import annotations

import torch

from lpsmap_torch.tensor.projection_problem import Projections

__all__ = ["with_forced_variables"]

ROUNDS = 8
"""Number of rounds of propagation."""

SLACK = 1e-12
"""Sums whose range is smaller than this are treated as fixed."""


def with_forced_variables(problems: Projections) -> Projections:
    """Return the projections with forced variables fixed and redundant bounds removed.

    If the least value of a sum is the largest that its bound allows, the sum fixes its variables at
    that value; likewise for its largest value. Bounds that a sum cannot violate are removed.
    Infeasible instances are returned unchanged.

    Parameters
    ----------
    problems
        The projections.
    """
    batch = problems.batch
    raises = batch._replace(matrix=batch.matrix.clamp(min=0.0), products=None)
    lowers = batch._replace(matrix=batch.matrix.clamp(max=0.0), products=None)
    most = problems.open.to(batch.matrix.dtype)
    least, consistent = torch.zeros_like(most), torch.ones_like(problems.open[:, :1])
    for _ in range(ROUNDS):
        smallest = raises.sums(least) + lowers.sums(most)
        largest = raises.sums(most) + lowers.sums(least)
        low_holds, high_holds = smallest >= batch.low - SLACK, largest <= batch.high + SLACK
        at_least, at_most = smallest >= batch.high - SLACK, largest <= batch.low + SLACK
        possible = (smallest <= batch.high + SLACK) & (largest >= batch.low - SLACK)
        consistent = consistent & possible.all(-1, keepdim=True)
        fixed_low, fixed_high = at_least.to(most.dtype), at_most.to(most.dtype)
        down = raises.pull(fixed_low) - lowers.pull(fixed_high) > 0.0
        up = raises.pull(fixed_high) - lowers.pull(fixed_low) > 0.0
        least, most = torch.where(up, most, least), torch.where(down, least, most)
    low = torch.where(consistent & low_holds, -torch.inf, batch.low)
    high = torch.where(consistent & high_holds, torch.inf, batch.high)
    return Projections(
        batch._replace(low=low, high=high),
        problems.eta,
        torch.where(consistent, least < most, problems.open),
        torch.where(consistent, least, problems.fixed),
    )
