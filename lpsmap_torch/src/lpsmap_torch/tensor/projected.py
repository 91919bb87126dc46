"""The results of projections, and the limits of their iterations."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from lpsmap_torch.tensor.active_face import ActiveFace
    from lpsmap_torch.tensor.face import Face


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
    """The projections of a batch."""

    values: Tensor
    """(n, n_columns) the solution."""
    gap: Tensor
    """(n,) duality gaps: the maximum is at most this much above the objective."""
    residual: Tensor
    """(n,) maximum distance of tight sums from their bounds, and of other sums beyond a bound."""
    exact: Tensor
    """(n,) whether the residual is rounding; false if a score is NaN or ``+inf``, where `values`
    are NaN."""
    infeasible: Tensor
    """(n,) whether the constraints are infeasible; false like `exact`."""
    iterations: Tensor
    """(n,) iterations of the interior point method, plus steps of Newton's method before it."""
    face: Face | ActiveFace
    """The faces, on which the projections are affine."""
    is_solved: bool = False
    """Whether the host knows that all are exact."""
