"""Positive semidefinite equations for many instances at once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Equations"]

DAMPING = 1e-10
"""Added to a diagonal of ones, since redundant rows make matrices singular."""

LEAST_DIAGONAL = 1e-200
"""Rows with a smaller diagonal entry are treated as zero."""

REFINEMENTS = 2
"""Number of refinements, each of which solves for the residual that damping leaves."""


class Equations:
    """Equations with one matrix for each instance, which may be singular.

    The factored matrix is damped. Refinement removes the effect of damping where the matrix is not
    singular (the proximal point method, Rockafellar 1976).

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
        scaled = self._scale * right
        x = self._solve_damped(scaled)
        for _ in range(REFINEMENTS):
            x = x + self._solve_damped(scaled - self._times(x))
        return self._scale * x

    def _solve_damped(self, right: Tensor) -> Tensor:
        # not cholesky_solve, which waits for the device to report errors
        half = torch.linalg.solve_triangular(self._factor, right.unsqueeze(-1), upper=False)
        x: Tensor = torch.linalg.solve_triangular(self._factor.mT, half, upper=True)
        return x.squeeze(-1)

    def _times(self, x: Tensor) -> Tensor:
        return (self._matrix @ x.unsqueeze(-1)).squeeze(-1)
