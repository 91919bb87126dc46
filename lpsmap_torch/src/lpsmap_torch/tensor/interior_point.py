"""A primal-dual interior point method for many projections at once.

It is Mehrotra's predictor-corrector method (1992) with one step length for all unknowns. Sums of
numbers ``w = A u`` have bounds with multipliers ``y``. At the solution, ``q u - eta - A' y`` is 0
where u is inside its bounds; q is 1 for numbers with a quadratic term, and 0 for others. Each
iteration solves two right-hand sides with the matrix ``A D A' + S``, where D and S are the inverse
stiffnesses of numbers and sums.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.tensor.projection_problem import (
    Projections,
    proves_infeasible,
    typical_score,
)

FIRST_PRODUCT = 0.1
"""Product of a slack and its multiplier at the start, relative to the typical score."""

FIRST_SLACK = 0.5
"""Distance of sums from their bounds at the start, if the bounds are far enough apart."""

MAX_CORRECTED = 10.0
"""Maximum correction of a product, relative to the mean product."""

TO_BOUNDARY = 0.995
"""Fraction of the way to the nearest bound that a step may go."""

CLOSE, SMALL_PRODUCT = 1e-9, 1e-12
"""Residuals, and products of slacks and multipliers, at which a point has converged."""

EASE_WITHOUT_BOUNDS = 1e30
"""Inverse stiffness of a sum without bounds, so that its multiplier stays zero."""

PROXIMAL, PROXIMAL_OF_LINEAR = 1e-9, 1e-8
"""Proximal terms of multipliers of magnitude 1, which are not unique if there are no interior
points, and of numbers without a quadratic term."""

MIN_PRODUCT = 1e-300
"""Minimum divisor in place of a mean product of zero."""


class Interior(NamedTuple):
    """A point within all bounds.

    Slacks of bounds and their multipliers are both positive, but 1 and 0 where there is no bound.
    They are those of lower bounds of the numbers, of upper ones, and of both bounds of the sums.
    """

    u: Tensor
    w: Tensor
    """The sums; they differ from A u by the infeasibility of the point."""
    y: Tensor
    slack: Tensor
    """(n, 2 n_x + 2 n_rows)"""
    multiplier: Tensor
    present: Tensor
    """Flags of the bounds."""
    done: Tensor
    """(n, 1) whether the point has converged, is lost to rounding, or proves infeasibility. Its
    numbers and multipliers do not change any more."""
    iterations: Tensor
    """(n, 1) numbers of iterations."""

    def by_bound(self, x: Tensor) -> list[Tensor]:
        """Return what `x` has for the lower and the upper bounds of numbers, then of sums."""
        n_x, n_rows = self.u.shape[-1], self.w.shape[-1]
        return list(torch.split(x, [n_x, n_x, n_rows, n_rows], dim=-1))

    def mean_product(self) -> Tensor:
        """Return the mean product of slacks and multipliers, for every instance."""
        count = self.present.sum(-1, keepdim=True).clamp(min=1)
        return (self.slack * self.multiplier).sum(-1, keepdim=True) / count

    def moved(self, step: Step, most: float) -> Interior:
        """Return the point after a step of at most a fraction of the way to the nearest bound."""
        divisor = torch.where(self.present, self.multiplier, 1.0)
        nearest = torch.minimum(step.slack / self.slack, step.multiplier / divisor)
        length = 1.0 / (-nearest.amin(-1, keepdim=True) / most).clamp(min=1.0)
        return self._replace(
            u=torch.where(self.done, self.u, self.u + length * step.u),
            w=self.w + length * step.w,
            y=torch.where(self.done, self.y, self.y + length * step.y),
            slack=self.slack + length * step.slack,
            multiplier=self.multiplier + length * step.multiplier,
        )


class Step(NamedTuple):
    """Changes of a point."""

    u: Tensor
    w: Tensor
    y: Tensor
    slack: Tensor
    multiplier: Tensor


def first_point(problems: Projections) -> Interior:
    """Return a point near the central path without the constraints on sums."""
    batch, open_ = problems.batch, problems.open
    product = FIRST_PRODUCT * typical_score(problems.eta, open_)
    lower = _one_sided(problems.eta, product).clamp(max=0.5)
    upper = _one_sided(1.0 - problems.eta, product).clamp(max=0.5)
    low_half = lower <= upper
    u = torch.where(low_half, lower, 1.0 - upper)
    rest = torch.where(low_half, 1.0 - lower, upper)
    # the smaller multiplier follows from the product, the other from stationarity
    above = torch.where(low_half, product / rest, problems.eta - u + product / u)
    below = torch.where(low_half, u - problems.eta + above, product / u)
    u = torch.where(open_, u, 0.0)
    lowest, highest = batch.low, batch.high
    equal = lowest == highest
    has_low, has_high = (lowest > -torch.inf) & ~equal, (highest < torch.inf) & ~equal
    margin = (0.25 * (highest - lowest)).clamp(max=FIRST_SLACK)
    w = batch.sums(u)
    w = torch.maximum(torch.minimum(w, highest - margin), lowest + margin)
    w = torch.where(equal, lowest, w)
    slacks = w - lowest, highest - w
    low = torch.where(has_low, product / slacks[0], 0.0)
    high = torch.where(has_high, product / slacks[1], 0.0)
    present = torch.cat([open_, open_, has_low, has_high], dim=-1)
    slack = torch.where(present, torch.cat([u, rest, *slacks], dim=-1), 1.0)
    multiplier = torch.where(present, torch.cat([below, above, low, high], dim=-1), 0.0)
    y, zeros = low - high, torch.zeros_like(problems.eta[:, :1])
    return Interior(u, w, y, slack, multiplier, present, zeros > 0.0, zeros)


def _one_sided(eta: Tensor, product: Tensor) -> Tensor:
    """Return the positive root of ``u - eta = product / u``, without cancellation."""
    root = (eta.square() + 4.0 * product).sqrt()
    return torch.where(eta > 0.0, 0.5 * (eta + root), 2.0 * product / (root - eta))


def next_point(problems: Projections, point: Interior) -> Interior:
    """Return the point after an iteration."""
    directions = _Directions(problems, point)
    mean, predicted = point.mean_product(), directions.step_to(0.0)
    ahead = point.moved(predicted, 1.0).mean_product()
    target = mean * (ahead / mean.clamp(min=MIN_PRODUCT)).clamp(0.0, 1.0) ** 3
    most = MAX_CORRECTED * mean
    corrected = target - predicted.slack * predicted.multiplier
    moved = point.moved(directions.step_to(corrected.clamp(-most, most)), TO_BOUNDARY)
    distance = _distance(problems, moved)
    lost = ~(distance < torch.inf)
    return moved._replace(
        u=torch.where(lost, point.u, moved.u),
        y=torch.where(lost, point.y, moved.y),
        done=point.done | (distance <= 1.0) | lost | proves_infeasible(problems, moved.y),
        iterations=point.iterations + ~point.done,
    )


class _Directions:
    """The steps from a point to given products of slacks and multipliers."""

    def __init__(self, problems: Projections, point: Interior) -> None:
        self._problems, self._point = problems, point
        self._pull, self._off = problems.batch.pull(point.y), _off(problems, point)
        below, above, low, high = point.by_bound(point.multiplier / point.slack)
        proximal = PROXIMAL_OF_LINEAR * (1.0 - problems.quadratic)
        stiffness = problems.quadratic + below + above + proximal
        self._ease = torch.where(problems.open, 1.0 / stiffness, 0.0)
        _, _, has_low, has_high = point.by_bound(point.present)
        self._bounded = has_low | has_high
        ease = torch.where(self._bounded, 1.0 / torch.where(self._bounded, low + high, 1.0), 0.0)
        self._ease_of_sums = torch.where(_is_unbounded(problems), EASE_WITHOUT_BOUNDS, ease)
        size = point.y.abs().amax(-1, keepdim=True).clamp(min=1.0)  # large if a mask cannot hold
        diagonal = self._ease_of_sums + PROXIMAL / size
        self._equations = problems.batch.equations(self._ease, diagonal, None)

    def step_to(self, product: Tensor | float) -> Step:
        """Return the step after which the products have given values, to first order."""
        batch, point, ease = self._problems.batch, self._point, self._ease_of_sums
        below, above, low, high = point.by_bound(product / point.slack)
        inward = self._problems.eta - self._problems.quadratic * point.u
        force = inward + self._pull + below - above
        of_sums = torch.where(self._bounded, low - high - point.y, 0.0)
        right = ease * of_sums - self._off - batch.sums(self._ease * force)
        dy = self._equations.solve(right)
        du = self._ease * (force + batch.pull(dy))
        # use the formula that does not amplify rounding errors
        dw = torch.where(ease < 1.0, ease * (of_sums - dy), batch.sums(du) + self._off)
        dw = torch.where(self._bounded, dw, 0.0)
        slack = torch.where(point.present, torch.cat([du, -du, dw, -dw], dim=-1), 0.0)
        change = (product - point.multiplier * slack) / point.slack - point.multiplier
        return Step(du, dw, dy, slack, torch.where(point.present, change, 0.0))


def _off(problems: Projections, point: Interior) -> Tensor:
    """Return the differences A u - w, and 0 for sums without bounds."""
    return torch.where(_is_unbounded(problems), 0.0, problems.batch.sums(point.u) - point.w)


def _is_unbounded(problems: Projections) -> Tensor:
    return (problems.batch.low == -torch.inf) & (problems.batch.high == torch.inf)


def _distance(problems: Projections, point: Interior) -> Tensor:
    """Return the maximum of residuals and products, in multiples of their tolerances."""
    below, above, _, _ = point.by_bound(point.multiplier)
    pull = problems.batch.pull(point.y)
    off = _off(problems, point).abs().amax(-1, keepdim=True)
    outward = problems.quadratic * point.u - problems.eta
    force = outward - pull - below + above
    size = 1.0 + problems.eta.abs() + pull.abs()
    force = torch.where(problems.open, force.abs() / size, 0.0).amax(-1, keepdim=True)
    product = (point.slack * point.multiplier).amax(-1, keepdim=True)
    distance = torch.maximum(torch.maximum(off, force) / CLOSE, product / SMALL_PRODUCT)
    if problems.batch.linear is not None:  # the smaller the scores, the smaller are multipliers
        distance = distance / problems.small_size
    return distance
