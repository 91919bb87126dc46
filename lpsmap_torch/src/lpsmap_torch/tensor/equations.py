"""Positive semidefinite equations for many instances at once."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "ConjugateGradients",
    "Dense",
    "Equations",
    "conjugate_gradients",
    "symmetric",
]

DAMPING = 1e-10
"""Added to a diagonal of ones, since redundant rows make matrices singular."""

MIN_DIAGONAL = 1e-200
"""Rows with a smaller diagonal entry are treated as zero."""

REFINEMENTS = 2
"""Number of refinements, each of which solves for the residual that damping leaves."""

REDUCTION = 1e-25
"""Squared residuals, relative to the first, at which conjugate gradients stop."""

MAX_STEPS = 200
"""Number of steps of conjugate gradients without a factorisation."""


class Equations(abc.ABC):
    """Equations with one matrix for each instance, which may be singular."""

    @abc.abstractmethod
    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions for (..., n) right-hand sides."""


class Dense(Equations):
    """Equations with dense matrices, which are damped, scaled to a diagonal of ones and factorised.

    Refinement removes the effect of damping where the matrix is not singular (the proximal point
    method, Rockafellar 1976).

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
        scaled = (self._scale * right).unsqueeze(-1)
        x = self._damped(scaled)
        for _ in range(REFINEMENTS):
            x = x + self._damped(scaled - self._matrix @ x)
        return self._scale * x.squeeze(-1)

    def _damped(self, right: Tensor) -> Tensor:
        """Return the solutions of the scaled, damped equations."""
        x: Tensor = self._inverse.mT @ (self._inverse @ right)
        return x


class ConjugateGradients(Equations):
    """Equations whose matrices are known by their products, for matrices too large to factorise.

    Parameters
    ----------
    times
        Returns products with the matrices.
    diagonal
        (..., n) the diagonals, which precondition (Jacobi).
    """

    def __init__(self, times: Callable[[Tensor], Tensor], diagonal: Tensor) -> None:
        self._times = times
        self._scale = torch.where(diagonal > MIN_DIAGONAL, diagonal, 1.0)

    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions for (..., n) right-hand sides."""
        steps = functools.partial(
            conjugate_gradients, self._times, self._preconditioned, n_steps=MAX_STEPS
        )
        return symmetric(steps, right)

    def _preconditioned(self, right: Tensor) -> Tensor:
        return right / self._scale


def conjugate_gradients(
    times: Callable[[Tensor], Tensor],
    preconditioned: Callable[[Tensor], Tensor],
    right: Tensor,
    n_steps: int,
) -> Tensor:
    """Return solutions by a fixed number of steps (Hestenes & Stiefel 1952).

    Parameters
    ----------
    times
        Returns products with symmetric positive semidefinite matrices.
    preconditioned
        Returns approximate solutions.
    right
        (..., n) right-hand sides.
    n_steps
        The number of steps; instances whose residuals are rounding errors do not move.
    """
    x, residual = torch.zeros_like(right), right
    direction = z = preconditioned(residual)
    product = (residual * z).sum(-1, keepdim=True)
    goal, best, least = REDUCTION * product, x, product
    for _ in range(n_steps):
        image = times(direction)
        curvature = (direction * image).sum(-1, keepdim=True)
        moves = (product > goal) & (curvature > 0.0)
        length = torch.where(moves, product / curvature, 0.0)
        x, residual = x + length * direction, residual - length * image
        z = preconditioned(residual)
        before, product = product, (residual * z).sum(-1, keepdim=True)
        direction = torch.where(moves, z + product / before * direction, 0.0)
        best = torch.where(product < least, x, best)  # rounding errors grow if a matrix is singular
        least = torch.fmin(least, product)
    return best


def symmetric(solve: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
    """Return ``solve(right)``, a linear function by steps that are not linear."""
    if right.requires_grad and torch.is_grad_enabled():
        found: Tensor = _Symmetric.apply(right, solve)  # type: ignore[no-untyped-call]
        return found
    return solve(right)


class _Symmetric(torch.autograd.Function):
    """A linear, symmetric function that autograd does not look into."""

    @staticmethod
    def forward(ctx: Any, right: Tensor, solve: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.solve = solve
        return solve(right)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return symmetric(ctx.solve, gradient), None
