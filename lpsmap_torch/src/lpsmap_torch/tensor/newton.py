"""Newton's method on the multipliers, which ends at the face of a solution.

With ``u(y) = clip(eta + A' y, 0, 1)`` the multipliers of a projection satisfy the piecewise linear
equations

    y_k = max(0, y_k + low_k - A_k u) + min(0, y_k + high_k - A_k u).

A step solves the linear equations of the current pieces (Qi & Sun 1993). Close to the solution, it
finds the pieces of the solution in a step or two, and then the solution up to rounding.

A number without a quadratic term gets a weak proximal term around its latest value, which every
step moves (the proximal point method, Rockafellar 1976).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.tensor.projection_problem import Projections

CLOSE = 4e-6
"""The margin if there are numbers without a quadratic term: the root of the products of an interior
point."""


class Pieces(NamedTuple):
    """The linear pieces at some multipliers."""

    u: Tensor
    free: Tensor
    """(n, n_x) whether a number is inside its bounds."""
    tight: Tensor
    """(n, n_rows) whether a sum must be at a bound."""
    off: Tensor
    """(n, n_rows) the bound of a tight sum minus the sum, and 0 for other sums."""
    y: Tensor
    moved: Tensor
    """(n, 1) maximum force of proximal terms, and distance of their free numbers from bounds."""

    @property
    def residual(self) -> Tensor:
        """(n, 1) maximum residual of the equations."""
        off = torch.where(self.tight, self.off, self.y).abs().amax(-1, keepdim=True)
        return torch.maximum(off, self.moved)


def pieces_at(
    problems: Projections, y: Tensor, center: Tensor, margin: Tensor | None = None
) -> Pieces:
    """Return the pieces at multipliers `y`, with proximal terms around the latest values.

    Numbers are free, and sums are tight, up to a margin from their bounds; None for 0.
    """
    margin = torch.zeros_like(y[:, :1]) if margin is None else margin
    low, high, linear = problems.batch.low, problems.batch.high, problems.batch.linear
    x = target = problems.eta + problems.batch.pull(y)
    moved = torch.zeros_like(y[:, :1])
    if linear is not None:
        # whether such a number is free depends on signs of value and force, hardly on their scale
        x, target = (torch.where(linear, center + e * x, x) for e in (problems.ease, 1.0))
        margin = torch.where(margin > 0.0, CLOSE, 0.0)  # where the interior point leaves them
    free = problems.open & (target > -margin) & (target < 1.0 + margin)
    inside = torch.where(problems.open, x.clamp(0.0, 1.0), 0.0)
    u = torch.where(free, x, inside)
    if linear is not None:
        outside = torch.where(linear & free, u - inside, 0.0).abs()
        force = torch.where(linear, (inside - center) / problems.ease, 0.0).abs()
        moved = torch.maximum(outside, force).amax(-1, keepdim=True)
    sums = problems.batch.sums(u)
    at_low, at_high = y + (low - sums) > -margin, y + (high - sums) < margin
    tight = at_low | at_high | (low == high)
    bound = torch.where(at_low, low, high)
    return Pieces(u, free, tight, torch.where(tight, bound - sums, 0.0), y, moved)


def newton_step(problems: Projections, pieces: Pieces) -> Tensor:
    """Return the multipliers that solve the equations of the current pieces."""
    batch, ease = problems.batch, problems.ease * pieces.free.to(pieces.u.dtype)
    dropped = torch.where(pieces.tight, 0.0, pieces.y)
    moved = batch.sums(ease * batch.pull(dropped))
    right = torch.where(pieces.tight, pieces.off + moved, 0.0)
    return pieces.y - dropped + batch.equations(ease, None, pieces.tight).solve(right)


def select(condition: Tensor, new: Pieces, old: Pieces) -> Pieces:
    """Return new pieces for instances where `condition` is true, and old pieces for the others."""
    return Pieces(*(torch.where(condition, *both) for both in zip(new, old, strict=True)))
