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

from lpsmap_torch.tensor.equations import Equations, Inverted
from lpsmap_torch.tensor.projection_problem import Projections

__all__ = ["Face", "Pieces", "newton_step", "on_face", "pieces_at", "select"]

EASE, PROXIMAL_STEPS = 1e3, 6
"""Inverse weight of proximal terms for the largest scores, and number of steps, of a product with
the Jacobian if there are numbers without a quadratic term."""


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
    center: Tensor
    """(n, n_x) the centers of proximal terms."""
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
    """Return the pieces at multipliers `y`.

    Parameters
    ----------
    problems
        The projections.
    y
        The multipliers.
    center
        (n, n_x) the latest values, the centers of proximal terms.
    margin
        (n, 1) distance from a bound up to which numbers are free, and sums are tight; None for 0.
    """
    margin = torch.zeros_like(y[:, :1]) if margin is None else margin
    low, high, linear = problems.low, problems.high, problems.batch.linear
    x = target = problems.eta + problems.batch.pull(y)
    moved = torch.zeros_like(y[:, :1])
    if linear is not None:
        # whether such a number is free depends on signs of value and force, hardly on their scale
        x, target = (torch.where(linear, center + e * x, x) for e in (problems.ease, 1.0))
        margin = torch.where(margin > 0.0, CLOSE, 0.0)  # where the interior point leaves them
    within = margin
    free = (target > -within) | ~problems.lower
    free = problems.open & free & ((target < 1.0 + within) | ~problems.upper)
    inside = torch.where(problems.lower, x.clamp(min=0.0), x)
    inside = torch.where(problems.upper, inside.clamp(max=1.0), inside)
    inside = torch.where(problems.open, inside, problems.fixed)
    u = torch.where(free, x, inside)
    if linear is not None:
        outside = torch.where(linear & free, u - inside, 0.0).abs()
        force = torch.where(linear, (inside - center) / problems.ease, 0.0).abs()
        moved = torch.maximum(outside, force).amax(-1, keepdim=True)
    sums = problems.batch.sums(u)
    at_low, at_high = y + (low - sums) > -margin, y + (high - sums) < margin
    tight = at_low | at_high | (low == high)
    bound = torch.where(at_low, low, high)
    return Pieces(u, free, tight, torch.where(tight, bound - sums, 0.0), y, center, moved)


def newton_step(problems: Projections, pieces: Pieces) -> Tensor:
    """Return the multipliers that solve the equations of the current pieces."""
    batch, ease = problems.batch, problems.ease * pieces.free.to(pieces.u.dtype)
    dropped = torch.where(pieces.tight, 0.0, pieces.y)
    moved = batch.sums(ease * batch.pull(dropped))
    right = torch.where(pieces.tight, pieces.off + moved, 0.0)
    equations = batch.equations(ease, torch.zeros_like(right), pieces.tight)
    return pieces.y - dropped + equations.solve(right)


def select(condition: Tensor, new: Pieces, old: Pieces) -> Pieces:
    """Return new pieces for instances where `condition` is true, and old pieces for the others."""
    return Pieces(*(torch.where(condition, *both) for both in zip(new, old, strict=True)))


def on_face(problems: Projections, pieces: Pieces, face: Face) -> Pieces:
    """Return the pieces with numbers moved onto the face, within their bounds.

    If a number is free despite a mask of -1e9, multipliers are as large as the mask, and their
    rounding errors move the sums off their bounds.
    """
    moved = pieces.u + face.ease * problems.batch.pull(face.equations.solve(pieces.off))
    u = torch.where(pieces.free, moved.clamp(0.0, 1.0), pieces.u)
    off = torch.where(pieces.tight, pieces.off + problems.batch.sums(pieces.u - u), 0.0)
    return pieces._replace(u=u, off=off)


class Face:
    """The face of every projection of a batch, on which it is an affine function of the scores.

    Parameters
    ----------
    problems
        The projections.
    free, tight
        Flags of the numbers inside their bounds, and of the sums at a bound.
    inverse
        (n, n_rows, n_rows) inverses of the damped equations on the faces, if they are known.
    """

    def __init__(
        self,
        problems: Projections,
        free: Tensor,
        tight: Tensor,
        inverse: Tensor | None = None,
    ) -> None:
        self._batch, self._tight = problems.batch, tight
        linear = self._batch.linear
        ease = (
            torch.ones_like(problems.eta)
            if linear is None
            else torch.where(linear, EASE / problems.small_size, 1.0)
        )
        self.ease = ease * free.to(problems.eta.dtype)
        self.equations: Equations
        if inverse is None:
            nothing = torch.zeros_like(tight, dtype=problems.eta.dtype)
            self.equations = self._batch.equations(self.ease, nothing, tight)
        else:
            self.equations = Inverted(self._times, inverse)

    def _times(self, y: Tensor) -> Tensor:
        """Return the products with the matrix of the equations, for multipliers of tight sums."""
        sums = self._batch.sums(self.ease * self._batch.pull(torch.where(self._tight, y, 0.0)))
        return torch.where(self._tight, sums, 0.0)

    def multiply(self, d: Tensor) -> Tensor:
        """Multiply the symmetric Jacobian with vectors on the columns; autograd can follow.

        The Jacobian projects onto the directions that do not change tight sums. The product of a
        vector that is not finite is NaN.
        """
        linear, forward = self._batch.linear, self.ease * self._batch.scores(d)
        found = self._projected(forward)
        if linear is not None:
            before = found
            for _ in range(1, PROXIMAL_STEPS):
                before, found = found, self._projected(forward + torch.where(linear, found, 0.0))
            # where flows are not unique, each step moves them on: leave them where they were
            drift = torch.where(linear, found - before, 0.0)
            found = found - PROXIMAL_STEPS * drift
        return self._batch.values(found) + (0.0 * d).sum(-1, keepdim=True)

    def _projected(self, x: Tensor) -> Tensor:
        """Return the nearest numbers to `x` that do not change tight sums."""
        sums = torch.where(self._tight, self._batch.sums(x), 0.0)
        y = torch.where(self._tight, self.equations.solve(sums), 0.0)  # also when autograd returns
        return x - self.ease * self._batch.pull(y)
