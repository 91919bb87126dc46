"""Positive semidefinite equations, solved for many instances at once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Equations"]

DAMPING = 1e-10
"""Added to a diagonal of ones: rows that are redundant make matrices singular."""

LEAST_DIAGONAL = 1e-200
"""Rows with less are taken for zero."""

REFINEMENTS = 2
"""How often what the damping leaves is solved again."""


class Equations:
    """Equations with one matrix for each instance, which may be singular.

    The factor is that of a damped matrix (Rockafellar's proximal point method in one variable:
    refinement takes the damping back wherever the matrix is not singular).

    Parameters
    ----------
    matrix
        (..., n, n) symmetric positive semidefinite matrices.
    """

    def __init__(self, matrix: Tensor) -> None:
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        self._scale = torch.where(diagonal > LEAST_DIAGONAL, diagonal, 1.0).rsqrt()
        self._matrix = self._scale.unsqueeze(-1) * matrix * self._scale.unsqueeze(-2)
        damped = self._matrix + DAMPING * torch.eye(
            matrix.shape[-1], dtype=matrix.dtype, device=matrix.device
        )
        self._factor = torch.linalg.cholesky_ex(damped).L

    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions for (..., n) right-hand sides."""
        wanted = self._scale * right
        found = self._divided(wanted)
        for _ in range(REFINEMENTS):
            found = found + self._divided(wanted - self._times(found))
        return self._scale * found

    def _divided(self, x: Tensor) -> Tensor:
        # not cholesky_solve, which reads a number of the device to report errors
        half = torch.linalg.solve_triangular(self._factor, x.unsqueeze(-1), upper=False)
        whole: Tensor = torch.linalg.solve_triangular(self._factor.mT, half, upper=True)
        return whole.squeeze(-1)

    def _times(self, x: Tensor) -> Tensor:
        return (self._matrix @ x.unsqueeze(-1)).squeeze(-1)
