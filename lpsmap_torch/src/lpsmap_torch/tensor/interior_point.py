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

__all__ = ["Interior", "first_point", "next_point"]

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

LOST, WITHIN_REACH = 1e3, 1e7
"""A point is lost to rounding if its distance is `LOST` times the least, and the least is below
`WITHIN_REACH`."""

EASE_WITHOUT_BOUNDS = 1e30
"""Inverse stiffness of a sum without bounds, so that its multiplier stays zero."""

PROXIMAL, PROXIMAL_OF_LINEAR = 1e-9, 1e-8
"""Proximal terms of multipliers of magnitude 1, which are not unique if there are no interior
points, and of numbers without a quadratic term."""

MIN_PRODUCT = 1e-300
"""Minimum divisor in place of a mean product of zero."""

Change = tuple[Tensor, Tensor]
"""Changes of slacks and of multipliers."""


class Pairs(NamedTuple):
    """Slacks of bounds and their multipliers, both positive; 1 and 0 where there is no bound."""

    slack: Tensor
    multiplier: Tensor
    present: Tensor

    def change(self, d_slack: Tensor, product: Tensor | float) -> Change:
        """Return the change after which the products are `product`, to first order."""
        d_slack = torch.where(self.present, d_slack, 0.0)
        change = (product - self.multiplier * d_slack) / self.slack - self.multiplier
        return d_slack, torch.where(self.present, change, 0.0)

    def reach(self, change: Change) -> Tensor:
        """Return the inverse of the longest step within the bounds, for every instance."""
        divisor = torch.where(self.present, self.multiplier, 1.0)
        return -torch.minimum(change[0] / self.slack, change[1] / divisor).amin(-1, keepdim=True)

    def moved(self, change: Change, length: Tensor) -> Pairs:
        """Return the pairs after a step."""
        slack, multiplier = self.slack + length * change[0], self.multiplier + length * change[1]
        return Pairs(slack, multiplier, self.present)

    @property
    def product(self) -> Tensor:
        """The sum of all products, for every instance."""
        return (self.slack * self.multiplier).sum(-1, keepdim=True)


class Interior(NamedTuple):
    """A point within all bounds."""

    u: Tensor
    w: Tensor
    """The sums; they differ from A u by the infeasibility of the point."""
    y: Tensor
    bounds: tuple[Pairs, Pairs, Pairs, Pairs]
    """Lower and upper bounds of the numbers, and lower and upper bounds of the sums."""
    best_u: Tensor
    """Numbers `u` of the point with the least distance so far."""
    best_y: Tensor
    """Its multipliers."""
    distance: Tensor
    """(n, 1) least distance so far: residuals and products relative to the tolerances."""
    done: Tensor
    """(n, 1) whether the point has converged, is lost to rounding, or proves infeasibility."""
    iterations: Tensor
    """(n, 1) numbers of iterations."""


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
    u = torch.where(open_, u, problems.fixed)
    variables = _pairs(u, below, open_), _pairs(rest, above, open_)
    lowest, highest = problems.low, problems.high
    equal = lowest == highest
    has_low, has_high = (lowest > -torch.inf) & ~equal, (highest < torch.inf) & ~equal
    margin = (0.25 * (highest - lowest)).clamp(max=FIRST_SLACK)
    w = batch.sums(u)
    w = torch.maximum(torch.minimum(w, highest - margin), lowest + margin)
    w = torch.where(equal, lowest, w)
    slacks = w - lowest, highest - w
    multipliers = (torch.where(s < torch.inf, product / s, 0.0) for s in slacks)
    low, high = map(_pairs, slacks, multipliers, (has_low, has_high))
    y = low.multiplier - high.multiplier
    zeros = torch.zeros_like(problems.eta[:, :1])
    bounds = (*variables, low, high)
    return Interior(u, w, y, bounds, u, y, zeros + torch.inf, zeros > 0.0, zeros)


def _one_sided(eta: Tensor, product: Tensor) -> Tensor:
    """Return the positive root of ``u - eta = product / u``, without cancellation."""
    root = (eta.square() + 4.0 * product).sqrt()
    return torch.where(eta > 0.0, 0.5 * (eta + root), 2.0 * product / (root - eta))


def _pairs(slack: Tensor, multiplier: Tensor, present: Tensor) -> Pairs:
    return Pairs(torch.where(present, slack, 1.0), torch.where(present, multiplier, 0.0), present)


def next_point(problems: Projections, point: Interior) -> Interior:
    """Return the point after an iteration. Multipliers of finished points do not change."""
    directions = _Directions(problems, point)
    present = torch.cat([pairs.present for pairs in point.bounds], dim=-1)
    count = present.sum(-1, keepdim=True).clamp(min=1)
    mean = _product(point.bounds) / count
    predicted = directions.step_to((0.0,) * 4)
    ahead = _moved(point.bounds, predicted.bounds, _length(point.bounds, predicted, 1.0))
    ratio = _product(ahead) / count / mean.clamp(min=MIN_PRODUCT)
    target, most = mean * ratio.clamp(0.0, 1.0) ** 3, MAX_CORRECTED * mean
    step = directions.step_to(
        tuple((target - s * m).clamp(-most, most) for s, m in predicted.bounds)
    )
    length = _length(point.bounds, step, TO_BOUNDARY)
    y = torch.where(point.done, point.y, point.y + length * step.dy)
    u, w = point.u + length * step.du, point.w + length * step.dw
    moved = point._replace(u=u, w=w, y=y, bounds=_moved(point.bounds, step.bounds, length))
    distance = _distance(problems, moved)
    closer = (distance < point.distance) & ~point.done
    least = torch.where(closer, distance, point.distance)
    lost = ~(distance < LOST * least) & (least < WITHIN_REACH)
    return moved._replace(
        best_u=torch.where(closer, u, point.best_u),
        best_y=torch.where(closer, y, point.best_y),
        distance=least,
        done=point.done | (least <= 1.0) | lost | proves_infeasible(problems, y),
        iterations=point.iterations + ~point.done,
    )


class Step(NamedTuple):
    """Changes of a point."""

    du: Tensor
    dw: Tensor
    dy: Tensor
    bounds: tuple[Change, ...]


class _Directions:
    """The steps from a point to given products of slacks and multipliers.

    Parameters
    ----------
    problems
        The projections.
    point
        The point.
    """

    def __init__(self, problems: Projections, point: Interior) -> None:
        self._problems, self._point, (below, above, low, high) = problems, point, point.bounds
        self._pull, self._off = problems.batch.pull(point.y), _off(problems, point)
        held = below.multiplier / below.slack + above.multiplier / above.slack
        proximal = PROXIMAL_OF_LINEAR * (1.0 - problems.quadratic)
        stiffness = problems.quadratic + held + proximal
        self._ease = torch.where(problems.open, 1.0 / stiffness, 0.0)
        self._bounded = low.present | high.present
        held = low.multiplier / low.slack + high.multiplier / high.slack
        ease = torch.where(self._bounded, 1.0 / torch.where(self._bounded, held, 1.0), 0.0)
        self._ease_of_sums = torch.where(_is_unbounded(problems), EASE_WITHOUT_BOUNDS, ease)
        size = point.y.abs().amax(-1, keepdim=True).clamp(min=1.0)  # large if a mask cannot hold
        diagonal = self._ease_of_sums + PROXIMAL / size
        self._equations = problems.batch.equations(self._ease, diagonal)

    def step_to(self, products: tuple[Tensor | float, ...]) -> Step:
        """Return the step after which the products have given values, to first order."""
        batch, point, ease = self._problems.batch, self._point, self._ease_of_sums
        ratios = [p / pairs.slack for p, pairs in zip(products, point.bounds, strict=True)]
        inward = self._problems.eta - self._problems.quadratic * point.u
        force = inward + self._pull + ratios[0] - ratios[1]
        of_sums = torch.where(self._bounded, ratios[2] - ratios[3] - point.y, 0.0)
        right = ease * of_sums - self._off - batch.sums(self._ease * force)
        dy = self._equations.solve(right)
        du = self._ease * (force + batch.pull(dy))
        # use the formula that does not amplify rounding errors
        dw = torch.where(ease < 1.0, ease * (of_sums - dy), batch.sums(du) + self._off)
        dw = torch.where(self._bounded, dw, 0.0)
        changes = map(Pairs.change, point.bounds, (du, -du, dw, -dw), products)
        return Step(du, dw, dy, tuple(changes))


def _off(problems: Projections, point: Interior) -> Tensor:
    """Return the differences A u - w, and 0 for sums without bounds."""
    return torch.where(_is_unbounded(problems), 0.0, problems.batch.sums(point.u) - point.w)


def _is_unbounded(problems: Projections) -> Tensor:
    return (problems.low == -torch.inf) & (problems.high == torch.inf)


def _distance(problems: Projections, point: Interior) -> Tensor:
    """Return the maximum of residuals and products, in multiples of their tolerances."""
    below, above, _, _ = point.bounds
    pull = problems.batch.pull(point.y)
    off = _off(problems, point).abs().amax(-1, keepdim=True)
    outward = problems.quadratic * point.u - problems.eta
    force = outward - pull - below.multiplier + above.multiplier
    size = 1.0 + problems.eta.abs() + pull.abs()
    force = torch.where(problems.open, force.abs() / size, 0.0).amax(-1, keepdim=True)
    products = [(pairs.slack * pairs.multiplier).amax(-1, keepdim=True) for pairs in point.bounds]
    product = torch.cat(products, -1).amax(-1, keepdim=True)
    distance = torch.maximum(torch.maximum(off, force) / CLOSE, product / SMALL_PRODUCT)
    if problems.batch.linear is not None:  # the smaller the scores, the smaller are multipliers
        distance = distance / problems.small_size
    return distance


def _product(bounds: tuple[Pairs, ...]) -> Tensor:
    total: Tensor = sum(pairs.product for pairs in bounds)  # type: ignore[assignment]
    return total


def _moved(
    bounds: tuple[Pairs, ...], changes: tuple[Change, ...], length: Tensor
) -> tuple[Pairs, Pairs, Pairs, Pairs]:
    below, above, low, high = (
        pairs.moved(change, length) for pairs, change in zip(bounds, changes, strict=True)
    )
    return below, above, low, high


def _length(bounds: tuple[Pairs, ...], step: Step, most: float) -> Tensor:
    """Return the step length with a fraction of at most `most` of the way to the nearest bound."""
    inverse = torch.cat([p.reach(c) for p, c in zip(bounds, step.bounds, strict=True)], dim=-1)
    return 1.0 / (inverse.amax(-1, keepdim=True) / most).clamp(min=1.0)
