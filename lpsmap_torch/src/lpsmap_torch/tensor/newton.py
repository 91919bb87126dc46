"""Newton's method on the multipliers, which ends at the face of a solution.

With ``u(y) = clip(eta + A' y, 0, 1)`` the multipliers of a projection satisfy

    y_k = max(0, y_k + low_k - A_k u) + min(0, y_k + high_k - A_k u),

piecewise linear equations. A step solves those of the pieces at hand (Qi & Sun 1993). From near the
solution it finds the pieces there in a step or two, and the solution to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.tensor.batches import Batch
from lpsmap_torch.tensor.equations import Equations
from lpsmap_torch.tensor.given import Projections

__all__ = ["Face", "Pieces", "chosen", "newton_step", "on_face", "pieces_at"]


class Pieces(NamedTuple):
    """The linear pieces at some multipliers."""

    u: Tensor
    free: Tensor
    """(n, n_variables) whether a variable is inside its bounds."""
    tight: Tensor
    """(n, n_rows) whether a sum has to be at a bound, which `off` is the distance from."""
    off: Tensor
    y: Tensor

    @property
    def residual(self) -> Tensor:
        """(n, 1) how far the equations are from being satisfied."""
        return torch.where(self.tight, self.off, self.y).abs().amax(-1, keepdim=True)


def pieces_at(of: Projections, y: Tensor, margin: Tensor | float = 0.0) -> Pieces:
    """Return the pieces at multipliers `y`.

    Parameters
    ----------
    of
        What is projected.
    y
        The multipliers.
    margin
        How far from a bound variables still count as free, and sums as tight.
    """
    batch = of.batch
    x = of.eta + batch.pull(y)
    free = of.open & (x > -margin) & (x < 1.0 + margin)
    u = torch.where(free, x, torch.where(of.open, x.clamp(0.0, 1.0), of.fixed))
    sums = batch.sums(u)
    at_low, at_high = y + (batch.low - sums) > -margin, y + (batch.high - sums) < margin
    tight = at_low | at_high | (batch.low == batch.high)
    bound = torch.where(at_low, batch.low, batch.high)
    return Pieces(u, free, tight, torch.where(tight, bound - sums, 0.0), y)


def newton_step(of: Projections, at: Pieces) -> Tensor:
    """Return the multipliers that solve the equations of the pieces at hand."""
    dropped = torch.where(at.tight, 0.0, at.y)
    moved = of.batch.sums(at.free * of.batch.pull(dropped))
    right = torch.where(at.tight, at.off + moved, 0.0)
    return at.y - dropped + Face(of.batch, at.free, at.tight).equations.solve(right)


def chosen(which: Tensor, new: Pieces, old: Pieces) -> Pieces:
    """Return the pieces of new instances where `which` is true, and of old ones elsewhere."""
    return Pieces(*(torch.where(which, *both) for both in zip(new, old, strict=True)))


def on_face(of: Projections, at: Pieces, face: Face) -> Pieces:
    """Return the pieces with variables moved to the face, as far as their bounds allow.

    Multipliers of a variable that is free despite a mask of -1e9 are as large as the mask, and
    rounding errors in them move variables off the sums.
    """
    moved = at.u + torch.where(at.free, of.batch.pull(face.equations.solve(at.off)), 0.0)
    u = torch.where(at.free, moved.clamp(0.0, 1.0), at.u)
    off = torch.where(at.tight, at.off + of.batch.sums(at.u - u), 0.0)
    return at._replace(u=u, off=off)


class Face:
    """The face of every projection of a batch, on which it is an affine function of the scores.

    Parameters
    ----------
    batch
        The constraints.
    free, tight
        Which variables are inside their bounds, and which sums at theirs.
    """

    def __init__(self, batch: Batch, free: Tensor, tight: Tensor) -> None:
        self._batch, self._free, self._tight = batch, free, tight
        both = tight.unsqueeze(-1) & tight.unsqueeze(-2)
        matrix = torch.where(both, batch.gram(free.to(batch.matrix.dtype)), 0.0)
        self.equations = Equations(matrix)

    def multiply(self, d: Tensor) -> Tensor:
        """Multiply the symmetric Jacobian with (n, n_variables) vectors, in operations of autograd.

        The Jacobian projects onto the directions along which no tight sum changes. A vector that is
        not finite has a product of NaN.
        """
        inside = torch.where(self._free, d, 0.0)
        sums = torch.where(self._tight, self._batch.sums(inside), 0.0)
        pull = self._batch.pull(self.equations.solve(sums))
        return inside - torch.where(self._free, pull, 0.0) + (0.0 * d).sum(-1, keepdim=True)
