"""Positive semidefinite equations for many instances at once."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "BlockTridiagonal",
    "ConjugateGradients",
    "Dense",
    "Equations",
    "conjugate_gradients",
    "symmetric",
]

DAMPING, DAMPING_OF_BLOCKS = {torch.float64: 1e-10, torch.float32: 1e-6}, 1e-12
"""Added to a diagonal of ones, since redundant rows make matrices singular."""

LEAST_DIAGONAL = 1e-200
"""Rows with a smaller diagonal entry are treated as zero."""

REFINEMENTS = {torch.float64: 2, torch.float32: 12}
"""Number of refinements, each of which solves for the residual that damping leaves."""

REDUCTION = 1e-25
"""Squared residuals, relative to the first, at which conjugate gradients stop."""

MOST_STEPS = 200
"""Number of steps of conjugate gradients without a factorisation."""


class Equations(abc.ABC):
    """Equations with one matrix for each instance, which may be singular."""

    @abc.abstractmethod
    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions for (..., n) right-hand sides."""


class _Factored(Equations):
    """Equations with a factorisation of the damped matrix, scaled to a diagonal of ones.

    Refinement removes the effect of damping where the matrix is not singular (the proximal point
    method, Rockafellar 1976). A factorisation in float32 serves as a preconditioner in float64.

    Parameters
    ----------
    diagonal
        (..., n) the diagonal of the matrix.
    """

    precision = torch.float64

    def __init__(self, diagonal: Tensor) -> None:
        self._scale = torch.where(diagonal > LEAST_DIAGONAL, diagonal, 1.0).rsqrt()

    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions for (..., n) right-hand sides."""
        scaled, n = self._scale * right, REFINEMENTS[self.precision]
        if self.precision is torch.float32:
            steps = functools.partial(conjugate_gradients, self._times, self._rounded, n_steps=n)
            return self._scale * symmetric(steps, scaled)
        x = self._damped(scaled)
        for _ in range(n):
            x = x + self._damped(scaled - self._times(x))
        return self._scale * x

    def _rounded(self, right: Tensor) -> Tensor:
        return self._damped(right.to(self.precision)).to(right.dtype)

    @abc.abstractmethod
    def _damped(self, right: Tensor) -> Tensor:
        """Return the solutions of the scaled, damped equations."""

    @abc.abstractmethod
    def _times(self, x: Tensor) -> Tensor:
        """Return the products with the scaled matrices."""


class Dense(_Factored):
    """Equations with dense matrices.

    Parameters
    ----------
    matrix
        (..., n, n) symmetric positive semidefinite matrices.
    precision
        The dtype of the factorisation.
    """

    def __init__(self, matrix: Tensor, precision: torch.dtype = torch.float64) -> None:
        super().__init__(matrix.diagonal(dim1=-2, dim2=-1))
        self.precision = precision
        self._matrix = self._scale.unsqueeze(-1) * matrix * self._scale.unsqueeze(-2)
        ones = torch.eye(matrix.shape[-1], dtype=precision, device=matrix.device)
        damped = self._matrix.to(precision) + DAMPING[precision] * ones
        factor = torch.linalg.cholesky_ex(damped).L
        # refined solves are many, and products are much faster than triangular solves on a GPU
        self._inverse = torch.linalg.solve_triangular(factor, ones, upper=False)

    def _damped(self, right: Tensor) -> Tensor:
        x: Tensor = self._inverse.mT @ (self._inverse @ right.unsqueeze(-1))
        return x.squeeze(-1)

    def _times(self, x: Tensor) -> Tensor:
        return (self._matrix @ x.unsqueeze(-1)).squeeze(-1)


class BlockTridiagonal(_Factored):
    """Equations with block tridiagonal matrices whose diagonal blocks are diagonal.

    Parameters
    ----------
    diagonal
        (..., k, s) the diagonals of k blocks.
    couplings
        (..., k - 1, s, s) the blocks above the diagonal.
    precision
        The dtype of the factorisation.
    """

    def __init__(
        self, diagonal: Tensor, couplings: Tensor, precision: torch.dtype = torch.float64
    ) -> None:
        self._shape = diagonal.shape[-2:]
        super().__init__(diagonal.flatten(-2))
        self.precision, scale = precision, torch.unflatten(self._scale, -1, self._shape)
        self._diagonal = scale.square() * diagonal
        rows, columns = scale[..., :-1, :].unsqueeze(-1), scale[..., 1:, :].unsqueeze(-2)
        self._couplings = rows * couplings * columns
        self._factors, self._links = self._factorised()

    def _factorised(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the diagonal blocks and the blocks above them of the Cholesky factor."""
        damping = DAMPING_OF_BLOCKS if self.precision is torch.float64 else DAMPING[self.precision]
        damped = self._diagonal.to(self.precision) + damping
        blocks = torch.diag_embed(damped).unbind(-3)
        factors, links = [torch.linalg.cholesky_ex(blocks[0]).L], list[Tensor]()
        couplings = self._couplings.to(self.precision).unbind(-3)
        for block, coupling in zip(blocks[1:], couplings, strict=True):
            link = torch.linalg.solve_triangular(factors[-1], coupling, upper=False)
            factors.append(torch.linalg.cholesky_ex(block - link.mT @ link).L)
            links.append(link)
        return factors, links

    def _damped(self, right: Tensor) -> Tensor:
        blocks = torch.unflatten(right, -1, self._shape).unsqueeze(-1).unbind(-3)
        ahead = [torch.linalg.solve_triangular(self._factors[0], blocks[0], upper=False)]
        steps = zip(self._factors[1:], self._links, blocks[1:], strict=True)
        for factor, link, block in steps:
            rest = block - link.mT @ ahead[-1]
            ahead.append(torch.linalg.solve_triangular(factor, rest, upper=False))
        x = [torch.linalg.solve_triangular(self._factors[-1].mT, ahead[-1], upper=True)]
        back = zip(self._factors[-2::-1], self._links[::-1], ahead[-2::-1], strict=True)
        for factor, link, half in back:
            x.append(torch.linalg.solve_triangular(factor.mT, half - link @ x[-1], upper=True))
        return torch.stack(x[::-1], dim=-3).squeeze(-1).flatten(-2)

    def _times(self, x: Tensor) -> Tensor:
        blocks = torch.unflatten(x, -1, self._shape)
        after = (self._couplings @ blocks[..., 1:, :].unsqueeze(-1)).squeeze(-1)
        before = (self._couplings.mT @ blocks[..., :-1, :].unsqueeze(-1)).squeeze(-1)
        nothing = torch.zeros_like(blocks[..., :1, :])
        neighbours = torch.cat([after, nothing], -2) + torch.cat([nothing, before], -2)
        product: Tensor = (self._diagonal * blocks + neighbours).flatten(-2)
        return product


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
        self._scale = torch.where(diagonal > LEAST_DIAGONAL, diagonal, 1.0)

    def solve(self, right: Tensor) -> Tensor:
        """Return the solutions for (..., n) right-hand sides."""
        steps = functools.partial(
            conjugate_gradients, self._times, self._preconditioned, n_steps=MOST_STEPS
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
