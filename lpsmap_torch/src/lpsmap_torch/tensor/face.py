"""The faces of projections, on which they are affine functions of the scores."""

from __future__ import annotations

import torch
from torch import Tensor

from lpsmap_core.api import cached_property
from lpsmap_torch.function import symmetric
from lpsmap_torch.tensor.batch import Batch
from lpsmap_torch.tensor.cuda_kernels import multiply
from lpsmap_torch.tensor.equations import Equations
from lpsmap_torch.tensor.newton import Pieces
from lpsmap_torch.tensor.projection_problem import Projections
from lpsmap_torch.tensors import is_eager

EASE, PROXIMAL_STEPS = 1e3, 6
"""Inverse weight of proximal terms for the largest scores, and number of steps, of a product with
the Jacobian if there are numbers without a quadratic term."""


class Face:
    """The face of every projection of a batch.

    Its tight sums are at a bound, and ease is the inverse stiffness of the numbers inside their
    bounds, 0 for others.
    """

    def __init__(self, batch: Batch, ease: Tensor, tight: Tensor) -> None:
        self.batch, self.ease, self.tight = batch, ease, tight

    @cached_property
    def equations(self) -> Equations:
        """The equations of multipliers on the faces, factorised when they are needed."""
        return self.batch.equations(self.ease, None, self.tight)

    def multiply(self, d: Tensor) -> Tensor:
        """Multiply the symmetric Jacobian with vectors on the columns; autograd can follow.

        The Jacobian projects onto the directions that do not change tight sums. The product of a
        vector that is not finite is NaN.
        """
        linear, forward = self.batch.linear, self.ease * d
        found = self._projected(forward)
        if linear is not None:
            for _ in range(1, PROXIMAL_STEPS):
                found = self._projected(forward + torch.where(linear, found, 0.0))
        return found + (0.0 * d).sum(-1, keepdim=True)

    def _projected(self, x: Tensor) -> Tensor:
        """Return the nearest numbers to `x` that do not change tight sums."""
        sums = torch.where(self.tight, self.batch.sums(x), 0.0)
        y = torch.where(self.tight, self.equations.solve(sums), 0.0)  # also when autograd returns
        return x - self.ease * self.batch.pull(y)


class FusedFace(Face):
    """The faces that a kernel has found, and another multiplies with."""

    def multiply(self, d: Tensor) -> Tensor:
        """Multiply the Jacobian with vectors; see `Face.multiply`."""
        return symmetric(self._multiply, d) if is_eager(d) else super().multiply(d)

    def _multiply(self, d: Tensor) -> Tensor:
        # autograd calls this again for vectors that may be within a transform
        return (
            multiply(self.batch, self.ease, self.tight, d) if is_eager(d) else super().multiply(d)
        )


def face_of(problems: Projections, free: Tensor, tight: Tensor) -> Face:
    """Return the faces on which numbers are free, inside their bounds, and sums are tight."""
    ease, linear = free.to(problems.eta.dtype), problems.batch.linear
    if linear is not None:
        ease = torch.where(linear, EASE / problems.small_size, 1.0) * ease
    return Face(problems.batch, ease, tight)


def on_face(problems: Projections, pieces: Pieces, face: Face) -> Pieces:
    """Return the pieces with numbers moved onto the face, within their bounds.

    If a number is free despite a mask of -1e9, multipliers are as large as the mask, and their
    rounding errors move the sums off their bounds.
    """
    moved = pieces.u + face.ease * problems.batch.pull(face.equations.solve(pieces.off))
    u = torch.where(pieces.free, moved.clamp(0.0, 1.0), pieces.u)
    off = torch.where(pieces.tight, pieces.off + problems.batch.sums(pieces.u - u), 0.0)
    return pieces._replace(u=u, off=off)
