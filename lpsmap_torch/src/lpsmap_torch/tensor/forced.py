"""Variables that the constraints leave no choice, and constraints that hold whatever these are.

Where they have none, nothing lies strictly within the bounds, and an interior point method has no
path to follow.
"""

from __future__ import annotations

import torch

from lpsmap_torch.tensor.given import Projections

__all__ = ["with_forced_variables"]

ROUNDS = 8
"""How often what was found is used to find more."""

SLACK = 1e-12
"""Sums that can move by less than this cannot move."""


def with_forced_variables(of: Projections) -> Projections:
    """Return what is left to project where some variables have no choice.

    A sum whose least value is all that its bound allows holds its variables where they are then,
    and likewise for the largest. Bounds that no sum can pass are left out. Instances that
    contradict themselves stay as they are given.

    Parameters
    ----------
    of
        What is to be projected.
    """
    batch = of.batch
    raises = batch._replace(matrix=batch.matrix.clamp(min=0.0), products=None)
    lowers = batch._replace(matrix=batch.matrix.clamp(max=0.0), products=None)
    most = of.open.to(batch.matrix.dtype)
    least, consistent = torch.zeros_like(most), torch.ones_like(of.open[:, :1])
    for _ in range(ROUNDS):
        smallest = raises.sums(least) + lowers.sums(most)
        largest = raises.sums(most) + lowers.sums(least)
        low_holds, high_holds = smallest >= batch.low - SLACK, largest <= batch.high + SLACK
        at_least, at_most = smallest >= batch.high - SLACK, largest <= batch.low + SLACK
        possible = (smallest <= batch.high + SLACK) & (largest >= batch.low - SLACK)
        consistent = consistent & possible.all(-1, keepdim=True)
        pressed, lifted = at_least.to(most.dtype), at_most.to(most.dtype)
        down = raises.pull(pressed) - lowers.pull(lifted) > 0.0
        up = raises.pull(lifted) - lowers.pull(pressed) > 0.0
        least, most = torch.where(up, most, least), torch.where(down, least, most)
    low = torch.where(consistent & low_holds, -torch.inf, batch.low)
    high = torch.where(consistent & high_holds, torch.inf, batch.high)
    return Projections(
        batch._replace(low=low, high=high),
        of.eta,
        torch.where(consistent, least < most, of.open),
        torch.where(consistent, least, of.fixed),
    )
