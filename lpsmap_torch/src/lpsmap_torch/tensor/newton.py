"""Newton's method on the multipliers, which ends at the face of a solution.

With ``u(y) = clip(eta + A' y, 0, 1)`` the multipliers of a projection satisfy the piecewise linear
equations

    y_k = max(0, y_k + low_k - A_k u) + min(0, y_k + high_k - A_k u).

A step solves the linear equations of the current pieces (Qi & Sun 1993). Close to the solution, it
finds the pieces of the solution in a step or two, and then the solution up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.tensor.batches import Batch
from lpsmap_torch.tensor.equations import Equations
from lpsmap_torch.tensor.projection_problem import Projections

__all__ = ["Face", "Pieces", "newton_step", "on_face", "pieces_at", "select"]


class Pieces(NamedTuple):
    """The linear pieces at some multipliers."""

    u: Tensor
    free: Tensor
    """(n, n_variables) whether a variable is inside its bounds."""
    tight: Tensor
    """(n, n_rows) whether a sum must be at a bound."""
    off: Tensor
    """(n, n_rows) the bound of a tight sum minus the sum, and 0 for other sums."""
    y: Tensor

    @property
    def residual(self) -> Tensor:
        """(n, 1) maximum residual of the equations."""
        return torch.where(self.tight, self.off, self.y).abs().amax(-1, keepdim=True)


def pieces_at(problems: Projections, y: Tensor, margin: Tensor | float = 0.0) -> Pieces:
    """Return the pieces at multipliers `y`.

    Parameters
    ----------
    problems
        The projections.
    y
        The multipliers.
    margin
        Distance from a bound up to which variables are free, and sums are tight.
    """
    batch = problems.batch
    x = problems.eta + batch.pull(y)
    free = problems.open & (x > -margin) & (x < 1.0 + margin)
    u = torch.where(free, x, torch.where(problems.open, x.clamp(0.0, 1.0), problems.fixed))
    sums = batch.sums(u)
    at_low, at_high = y + (batch.low - sums) > -margin, y + (batch.high - sums) < margin
    tight = at_low | at_high | (batch.low == batch.high)
    bound = torch.where(at_low, batch.low, batch.high)
    return Pieces(u, free, tight, torch.where(tight, bound - sums, 0.0), y)


def newton_step(problems: Projections, pieces: Pieces) -> Tensor:
    """Return the multipliers that solve the equations of the current pieces."""
    dropped = torch.where(pieces.tight, 0.0, pieces.y)
    moved = problems.batch.sums(pieces.free * problems.batch.pull(dropped))
    right = torch.where(pieces.tight, pieces.off + moved, 0.0)
    face = Face(problems.batch, pieces.free, pieces.tight)
    return pieces.y - dropped + face.equations.solve(right)


def select(condition: Tensor, new: Pieces, old: Pieces) -> Pieces:
    """Return new pieces for instances where `condition` is true, and old pieces for the others."""
    return Pieces(*(torch.where(condition, *both) for both in zip(new, old, strict=True)))


def on_face(problems: Projections, pieces: Pieces, face: Face) -> Pieces:
    """Return the pieces with variables moved onto the face, within their bounds.

    If a variable is free despite a mask of -1e9, multipliers are as large as the mask, and their
    rounding errors move the sums off their bounds.
    """
    change = problems.batch.pull(face.equations.solve(pieces.off))
    moved = pieces.u + torch.where(pieces.free, change, 0.0)
    u = torch.where(pieces.free, moved.clamp(0.0, 1.0), pieces.u)
    off = torch.where(pieces.tight, pieces.off + problems.batch.sums(pieces.u - u), 0.0)
    return pieces._replace(u=u, off=off)


class Face:
    """The face of every projection of a batch, on which it is an affine function of the scores.

    Parameters
    ----------
    batch
        The constraints.
    free, tight
        Flags of the variables inside their bounds, and of the sums at a bound.
    """

    def __init__(self, batch: Batch, free: Tensor, tight: Tensor) -> None:
        self._batch, self._free, self._tight = batch, free, tight
        both = tight.unsqueeze(-1) & tight.unsqueeze(-2)
        matrix = torch.where(both, batch.gram(free.to(batch.matrix.dtype)), 0.0)
        self.equations = Equations(matrix)

    def multiply(self, d: Tensor) -> Tensor:
        """Multiply the symmetric Jacobian with (n, n_variables) vectors; autograd can follow.

        The Jacobian projects onto the directions that do not change tight sums. The product of a
        vector that is not finite is NaN.
        """
        inside = torch.where(self._free, d, 0.0)
        sums = torch.where(self._tight, self._batch.sums(inside), 0.0)
        pull = self._batch.pull(self.equations.solve(sums))
        return inside - torch.where(self._free, pull, 0.0) + (0.0 * d).sum(-1, keepdim=True)
