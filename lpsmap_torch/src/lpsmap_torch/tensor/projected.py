"""The results of projections, and the limits of their iterations."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from torch import Tensor

from lpsmap_torch.tensor.batch import Members

__all__ = ["Batched", "Jacobians", "Limits", "Projected"]


class Batched(Protocol):
    """Components that are solved together."""

    @property
    def members(self) -> Members:
        """The components, and where their numbers are."""


class Jacobians(Protocol):
    """The faces of the projections of a batch, on which they are affine."""

    def multiply(self, d: Tensor) -> Tensor:
        """Multiply the symmetric Jacobian with vectors on the columns; autograd can follow."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Numbers of iterations, and the period of checks of convergence, which wait for the device."""

    interior: int = 60
    newton: int = 30
    active: int | None = None
    """Maximum number of iterations of active sets; None for as many as they need."""
    check_every: int | None = 5
    """None for no checks: all iterations run, and nothing waits for the device."""

    def check_is_due(self, i: int) -> bool:
        """Return whether to check convergence before iteration `i`."""
        return self.check_every is not None and i % self.check_every == 0


@dataclasses.dataclass(frozen=True)
class Projected:
    """The projections of a batch.

    Attributes
    ----------
    batch
        The constraints.
    values
        (n, n_columns) the solution.
    y
        (n, n_rows) the multipliers; for infeasible constraints, a certificate.
    gap
        (n,) duality gaps: the maximum is at most this much above the objective.
    residual
        (n,) maximum distance of tight sums from their bounds, and of other sums beyond a bound.
    exact, infeasible
        (n,) whether the residual is rounding, and whether the constraints are infeasible. Both are
        false if a score is NaN or ``+inf``; `values` are then NaN.
    iterations
        (n,) iterations of the interior point method, plus steps of Newton's method before it.
    face
        The faces.
    is_solved
        Whether the host knows that all are exact.
    """

    batch: Batched
    values: Tensor
    y: Tensor
    gap: Tensor
    residual: Tensor
    exact: Tensor
    infeasible: Tensor
    iterations: Tensor
    face: Jacobians
    is_solved: bool = False
