"""Projections onto the constraints of a batch: interior point, then Newton on the face."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from lpsmap_torch.tensor.batches import Batch
from lpsmap_torch.tensor.forced import with_forced_variables
from lpsmap_torch.tensor.interior_point import first_point, next_point
from lpsmap_torch.tensor.newton import Face, Pieces, newton_step, on_face, pieces_at, select
from lpsmap_torch.tensor.projection_problem import Projections, proves_infeasible

__all__ = ["Limits", "Projected", "project"]

LARGEST = 1e15
"""Scores below minus this forbid, like ``-inf``; scores above it are clipped."""

EXACT, ROUNDING = 1e-12, 1e-15
"""Sums are exact up to the first, plus the second times the largest score of a free variable."""

KINK = 2.0
"""In every other Newton step, variables and sums closer to a bound than this multiple of the
residual are free and tight: otherwise steps can cycle between the two sides of a bound."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Numbers of iterations, and the period of checks of convergence, which wait for the device."""

    interior: int = 60
    newton: int = 12
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
    u
        (n, n_variables) the projections.
    y
        (n, n_rows) the multipliers; for infeasible constraints, a certificate.
    residual
        (n,) maximum distance of tight sums from their bounds, and of other sums beyond a bound.
    exact, infeasible
        (n,) whether the residual is rounding, and whether the constraints are infeasible. Both are
        false if a score is NaN or ``+inf``; `u` is then NaN.
    iterations
        (n,) iterations of the interior point method.
    face
        The faces.
    """

    batch: Batch
    u: Tensor
    y: Tensor
    residual: Tensor
    exact: Tensor
    infeasible: Tensor
    iterations: Tensor
    face: Face

    def gap(self) -> Tensor:
        """Return (n,) duality gaps: the minimum is at most this much below the objective."""
        y, sums = self.y, self.batch.sums(self.u)
        bound = torch.where(y > 0.0, self.batch.low, self.batch.high)
        # the multiplier of an infinite bound is at most the residual, and is treated as zero
        ignored = (y == 0.0) | bound.isinf()
        return torch.where(ignored, 0.0, y * (sums - bound)).sum(-1)


def project(batch: Batch, eta: Tensor, limits: Limits) -> Projected:
    """Project scores onto the constraints of a batch.

    Parameters
    ----------
    batch
        The constraints.
    eta
        (n, n_variables) scores; ``-inf`` where a variable is forbidden.
    limits
        Limits of iterations.
    """
    invalid = ~(eta < torch.inf).all(-1, keepdim=True)
    eta = torch.where(invalid, 0.0, eta)
    allowed = eta > -LARGEST
    eta = torch.where(allowed, eta.clamp(max=LARGEST), 0.0)
    unreduced = Projections(batch, eta, allowed, torch.zeros_like(eta))
    problems = with_forced_variables(unreduced)
    point = first_point(problems)
    for i in range(limits.interior):
        if i and limits.check_is_due(i) and bool(point.done.all()):
            break
        point = next_point(problems, point)
    infeasible = proves_infeasible(problems, point.y)
    pieces = best = pieces_at(problems, point.best)
    for i in range(limits.newton):
        if limits.check_is_due(i) and bool((is_exact(problems, best) | infeasible).all()):
            break
        margin = KINK * pieces.residual if i % 2 else 0.0
        pieces = pieces_at(problems, newton_step(problems, pieces_at(problems, pieces.y, margin)))
        best = select(pieces.residual < best.residual, pieces, best)
    face = Face(problems.batch, best.free & ~infeasible, best.tight & ~infeasible)
    exact = is_exact(problems, best)
    best = select(exact, on_face(problems, best, face), best)
    return Projected(
        batch,
        torch.where(invalid, torch.nan, best.u),
        torch.where(infeasible, point.y, best.y),
        torch.where(invalid, torch.inf, best.residual).squeeze(-1),
        (exact & ~invalid).squeeze(-1),
        (infeasible & ~invalid).squeeze(-1),
        point.iterations.squeeze(-1).long(),
        face,
    )


def is_exact(problems: Projections, pieces: Pieces) -> Tensor:
    """Return whether pieces satisfy the equations up to rounding."""
    size = torch.where(pieces.free, problems.eta.abs(), 0.0).amax(-1, keepdim=True)
    return pieces.residual <= EXACT + ROUNDING * size
