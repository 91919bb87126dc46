"""The projections of a batch: the problem, the limits and the results of methods that solve it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.tensor.batch import Batch

if TYPE_CHECKING:
    from lpsmap_torch.tensor.active_face import ActiveFace
    from lpsmap_torch.tensor.face import Face

MAX_SCORE = 1e15
"""Scores below minus this forbid, like ``-inf``; scores above it are clipped."""

EXACT, ROUNDING = 1e-12, 1e-15
"""Residuals are rounding up to the first, plus the second times the largest multiplier and score of
a free variable."""

MAX_DISTANCE = 1e-9
"""Maximum distance of a tight sum from its bound, however large the multipliers are, after numbers
were moved onto the face."""

PROVED = 1e-9
"""Minimum margin of a certificate of infeasibility, relative to its summed magnitudes."""

EASE = 1e4
"""Inverse weight of the proximal term that stands for a missing quadratic term on a face, relative
to the typical score."""


MIN_SIZE = 1e-4
"""Scores are treated as if the largest had this magnitude, or more."""


class Projections(NamedTuple):
    """The problems ``max <eta, x> - 1/2 ||x||^2`` under the constraints of a batch.

    Numbers without a quadratic term are left out of the norm. If there are no such numbers, the
    problems are projections of the scores.
    """

    batch: Batch
    eta: Tensor
    """(n, n_x) finite scores."""
    open: Tensor
    """(n, n_x) whether a number is allowed; the others are 0."""
    quadratic: Tensor | float
    """The weight of the quadratic term of each number, 1 or 0."""
    ease: Tensor | float
    """The inverse stiffness of free numbers on a face: 1 for those with a quadratic term."""

    @property
    def small_size(self) -> Tensor:
        """(n, 1) largest magnitudes of scores, at most 1."""
        size = torch.where(self.open, self.eta.abs(), 0.0).amax(-1, keepdim=True)
        return size.clamp(MIN_SIZE, 1.0)


def projections_of(batch: Batch, eta: Tensor, open_: Tensor) -> Projections:
    """Return the problems of a batch, given (n, n_x) finite scores and flags of those allowed."""
    quadratic: Tensor | float = 1.0
    ease: Tensor | float = 1.0
    if batch.linear is not None:
        quadratic = (~batch.linear).to(eta.dtype)
        ease = torch.where(batch.linear, EASE / typical_score(eta, open_), 1.0)
    return Projections(batch, eta, open_, quadratic, ease)


def typical_score(eta: Tensor, open_: Tensor) -> Tensor:
    """Return (n, 1) typical magnitudes of scores. A few large scores have little effect."""
    size = torch.where(open_, eta.abs().log1p(), 0.0).sum(-1, keepdim=True)
    return (size / open_.sum(-1, keepdim=True).clamp(min=1)).expm1().clamp(min=1.0)


def proves_infeasible(problems: Projections, y: Tensor) -> Tensor:
    """Return whether multipliers prove that the constraints are infeasible (Farkas' lemma).

    They do if the least value that the constraints require of the sums, weighted by y, is larger
    than the largest value that the numbers attain.
    """
    bound = torch.where(y > 0.0, problems.batch.low, problems.batch.high)
    y = torch.where(bound.isinf(), 0.0, y)
    y = y / y.abs().amax(-1, keepdim=True).clamp(min=1.0)
    required = torch.where(y == 0.0, 0.0, y * bound)
    attained = torch.where(problems.open, problems.batch.pull(y).clamp(min=0.0), 0.0)
    size = required.abs().sum(-1, keepdim=True) + attained.sum(-1, keepdim=True)
    margin = required.sum(-1, keepdim=True) - attained.sum(-1, keepdim=True)
    return margin > PROVED * size


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
