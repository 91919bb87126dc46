"""Projections onto the constraints of a batch: interior point, then Newton on the face."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from lpsmap_torch.tensor.batches import Batch
from lpsmap_torch.tensor.forced import with_forced_variables
from lpsmap_torch.tensor.given import Projections, proves_infeasible
from lpsmap_torch.tensor.interior_point import first_point, next_point
from lpsmap_torch.tensor.newton import Face, Pieces, chosen, newton_step, on_face, pieces_at

__all__ = ["Limits", "Projected", "project"]

LARGEST = 1e15
"""Scores below minus this forbid, as ``-inf`` does; larger ones are as good as this."""

EXACT, ROUNDING = 1e-12, 1e-15
"""Sums are exact if off by less than the first, and the second times the scores in them."""

KINK = 2.0
"""Every other Newton step takes variables and sums that are closer to a bound than so many times
the residual as free and tight: from one side of a bound to the other, steps can go in circles."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long to iterate, and how often to look whether it is enough.

    Looking is what waits for the device.
    """

    interior: int = 60
    newton: int = 12
    check_every: int | None = 5
    """None for never: all iterations are done, and nothing waits for the device."""

    def looks(self, i: int) -> bool:
        """Return whether to look before iteration `i` if all are done."""
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
        (n, n_rows) the multipliers; of an infeasible one those that prove it.
    residual
        (n,) how far sums are from their bounds, where multipliers hold them there, or beyond.
    exact, infeasible
        (n,) whether that is rounding, and whether nothing satisfies the constraints. Neither is so
        where a score is NaN or ``+inf``, and `u` is NaN.
    iterations
        (n,) of the interior point.
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
        """Return (n,) how far the minimum can lie below the distance, by the multipliers."""
        y, sums = self.y, self.batch.sums(self.u)
        bound = torch.where(y > 0.0, self.batch.low, self.batch.high)
        # a multiplier of a bound that is not there is at most the residual: it counts as zero
        without = (y == 0.0) | bound.isinf()
        return torch.where(without, 0.0, y * (sums - bound)).sum(-1)


def project(batch: Batch, eta: Tensor, limits: Limits) -> Projected:
    """Project scores onto the constraints of a batch.

    Parameters
    ----------
    batch
        The constraints.
    eta
        (n, n_variables) scores; ``-inf`` where a variable is forbidden.
    limits
        How long to iterate.
    """
    wrong = ~(eta < torch.inf).all(-1, keepdim=True)
    eta = torch.where(wrong, 0.0, eta)
    allowed = eta > -LARGEST
    eta = torch.where(allowed, eta.clamp(max=LARGEST), 0.0)
    given = Projections(batch, eta, allowed, torch.zeros_like(eta))
    of = with_forced_variables(given)
    point = first_point(of)
    for i in range(limits.interior):
        if i and limits.looks(i) and bool(point.done.all()):
            break
        point = next_point(of, point)
    infeasible = proves_infeasible(of, point.y)
    at = best = pieces_at(of, point.best)
    for i in range(limits.newton):
        if limits.looks(i) and bool((is_exact(of, best) | infeasible).all()):
            break
        margin = KINK * at.residual if i % 2 else 0.0
        at = pieces_at(of, newton_step(of, pieces_at(of, at.y, margin)))
        best = chosen(at.residual < best.residual, at, best)
    face = Face(of.batch, best.free & ~infeasible, best.tight & ~infeasible)
    exact = is_exact(of, best)
    best = chosen(exact, on_face(of, best, face), best)
    return Projected(
        batch,
        torch.where(wrong, torch.nan, best.u),
        torch.where(infeasible, point.y, best.y),
        torch.where(wrong, torch.inf, best.residual).squeeze(-1),
        (exact & ~wrong).squeeze(-1),
        (infeasible & ~wrong).squeeze(-1),
        point.iterations.squeeze(-1).long(),
        face,
    )


def is_exact(of: Projections, at: Pieces) -> Tensor:
    """Return whether pieces are those of the solution, up to rounding."""
    size = torch.where(at.free, of.eta.abs(), 0.0).amax(-1, keepdim=True)
    return at.residual <= EXACT + ROUNDING * size
