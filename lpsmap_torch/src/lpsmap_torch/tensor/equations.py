"""Positive semidefinite equations for many instances at once."""

from __future__ import annotations

import torch
from torch import Tensor

DAMPING = 1e-10
"""Added to a diagonal of ones, since redundant rows make matrices singular."""

MIN_DIAGONAL = 1e-200
"""Rows with a smaller diagonal entry are treated as zero."""

REFINEMENTS = 2
"""Number of refinements, each of which solves for the residual that damping leaves."""


class Equations:
    """Equations with one matrix for each instance, which may be singular.

    Matrices are damped, scaled to a diagonal of ones and factorised. Refinement removes the effect
    of damping where the matrix is not singular (the proximal point method, Rockafellar 1976).

    Parameters
    ----------
    matrix
        (..., n, n) symmetric positive semidefinite matrices.
    """

    def __init__(self, matrix: Tensor) -> None:
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        self._scale = torch.where(diagonal > MIN_DIAGONAL, diagonal, 1.0).rsqrt()
        self._matrix = self._scale.unsqueeze(-1) * matrix * self._scale.unsqueeze(-2)
        ones = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        factor = torch.linalg.cholesky_ex(self._matrix + DAMPING * ones).L
        # refined solves are many, and products are much faster than triangular solves on a GPU
        self._inverse = torch.linalg.solve_triangular(factor, ones, upper=False)

    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions for (..., n) right-hand sides."""
        return self._scale * self._refined((self._scale * right).unsqueeze(-1)).squeeze(-1)

    def inverse(self) -> Tensor:
        """Return the inverses of the matrices."""
        return self._scale.unsqueeze(-1) * self._refined(torch.diag_embed(self._scale))

    def _refined(self, right: Tensor) -> Tensor:
        x = self._damped(right)
        for _ in range(REFINEMENTS):
            x = x + self._damped(right - self._matrix @ x)
        return x

    def _damped(self, right: Tensor) -> Tensor:
        x: Tensor = self._inverse.mT @ (self._inverse @ right)
        return x
