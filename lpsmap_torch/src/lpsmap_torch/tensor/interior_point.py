"""A primal-dual interior point method for many projections at once.

Mehrotra's predictor and corrector (1992) with one step length for all unknowns. Sums of variables
``w = A u`` have bounds of their own, with multipliers ``y``; at the solution ``u - eta - A' y`` is
zero wherever u is inside its bounds. Each iteration solves two right-hand sides with the matrix
``A D A' + S``, where D and S say how easily variables and sums move.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lpsmap_torch.tensor.equations import Equations
from lpsmap_torch.tensor.given import Projections, proves_infeasible

__all__ = ["Interior", "first_point", "next_point"]

FIRST_PRODUCT = 0.1
"""What a slack and its multiplier multiply to at the start, relative to the usual score."""

FIRST_SLACK = 0.5
"""How far sums begin from their bounds, if these are far enough from each other."""

MOST_CORRECTED = 10.0
"""How large products may be that a step aims at, relative to their mean."""

TO_BOUNDARY = 0.995
"""How much of the way to the nearest bound a step may go."""

CLOSE, SMALL_PRODUCT = 1e-9, 1e-12
"""Residuals, and mean product of slacks and multipliers, at which a point is close."""

LOST, WITHIN_REACH = 1e3, 1e7
"""A point is lost to rounding if its distance is so many times the least, and that was small."""

EASE_WITHOUT_BOUNDS = 1e30
"""How easily a sum moves that has no bounds, so that its multiplier stays zero."""

PROXIMAL = 1e-9
"""How much multipliers are held where they are: without interior points nothing else does."""

LEAST_PRODUCT = 1e-300
"""What a mean product is divided by where it is zero."""

Change = tuple[Tensor, Tensor]
"""Of slacks and of multipliers."""


class Pairs(NamedTuple):
    """Slacks of bounds and their multipliers, both above zero; 1 and 0 where there is no bound."""

    slack: Tensor
    multiplier: Tensor
    there: Tensor

    def change(self, d_slack: Tensor, product: Tensor | float) -> Change:
        """Return the change that makes the products what they should be, to first order."""
        d_slack = torch.where(self.there, d_slack, 0.0)
        change = (product - self.multiplier * d_slack) / self.slack - self.multiplier
        return d_slack, torch.where(self.there, change, 0.0)

    def reach(self, change: Change) -> Tensor:
        """Return the inverse of the longest step within the bounds, of every instance."""
        divisor = torch.where(self.there, self.multiplier, 1.0)
        return -torch.minimum(change[0] / self.slack, change[1] / divisor).amin(-1, keepdim=True)

    def moved(self, change: Change, length: Tensor) -> Pairs:
        """Return where a step leads."""
        slack, multiplier = self.slack + length * change[0], self.multiplier + length * change[1]
        return Pairs(slack, multiplier, self.there)

    @property
    def product(self) -> Tensor:
        """The sum of all products, of every instance."""
        return (self.slack * self.multiplier).sum(-1, keepdim=True)


class Interior(NamedTuple):
    """A point within all bounds."""

    u: Tensor
    w: Tensor
    """The sums, as far from A u as the point is from being feasible."""
    y: Tensor
    bounds: tuple[Pairs, Pairs, Pairs, Pairs]
    """Of the variables below and above, and of the sums below and above."""
    best: Tensor
    """The multipliers `y` of the point so far that is closest to the solution."""
    distance: Tensor
    """(n, 1) what is left there of residuals and products."""
    done: Tensor
    """(n, 1) whether that is close, or does not get closer; or `y` proves that nothing will."""
    iterations: Tensor
    """(n, 1)"""


def first_point(of: Projections) -> Interior:
    """Return a point near the central path without the constraints on sums."""
    batch, open_ = of.batch, of.open
    product = FIRST_PRODUCT * _usual_score(of)
    lower = _one_sided(of.eta, product).clamp(max=0.5)
    upper = _one_sided(1.0 - of.eta, product).clamp(max=0.5)
    low_half = lower <= upper
    u = torch.where(low_half, lower, 1.0 - upper)
    rest = torch.where(low_half, 1.0 - lower, upper)
    # the smaller multiplier follows from the product, the other from stationarity
    above = torch.where(low_half, product / rest, of.eta - u + product / u)
    below = torch.where(low_half, u - of.eta + above, product / u)
    u = torch.where(open_, u, of.fixed)
    variables = _pairs(u, below, open_), _pairs(rest, above, open_)
    equal = batch.low == batch.high
    has_low, has_high = (batch.low > -torch.inf) & ~equal, (batch.high < torch.inf) & ~equal
    margin = (0.25 * (batch.high - batch.low)).clamp(max=FIRST_SLACK)
    w = batch.sums(u)
    w = torch.maximum(torch.minimum(w, batch.high - margin), batch.low + margin)
    w = torch.where(equal, batch.low, w)
    slacks = w - batch.low, batch.high - w
    multipliers = (torch.where(s < torch.inf, product / s, 0.0) for s in slacks)
    low, high = map(_pairs, slacks, multipliers, (has_low, has_high))
    y = low.multiplier - high.multiplier
    nothing = torch.zeros_like(of.eta[:, :1])
    bounds = (*variables, low, high)
    return Interior(u, w, y, bounds, y, nothing + torch.inf, nothing > 0.0, nothing)


def _usual_score(of: Projections) -> Tensor:
    """Return (n, 1) magnitudes of scores, which a few large ones do not count much in."""
    size = torch.where(of.open, of.eta.abs().log1p(), 0.0).sum(-1, keepdim=True)
    return (size / of.open.sum(-1, keepdim=True).clamp(min=1)).expm1().clamp(min=1.0)


def _one_sided(eta: Tensor, product: Tensor) -> Tensor:
    """Return the positive root of ``u - eta = product / u``, without cancellation."""
    root = (eta.square() + 4.0 * product).sqrt()
    return torch.where(eta > 0.0, 0.5 * (eta + root), 2.0 * product / (root - eta))


def _pairs(slack: Tensor, multiplier: Tensor, there: Tensor) -> Pairs:
    return Pairs(torch.where(there, slack, 1.0), torch.where(there, multiplier, 0.0), there)


def next_point(of: Projections, at: Interior) -> Interior:
    """Return where an iteration leads; points that are done stay."""
    directions = _Directions(of, at)
    there = torch.cat([pairs.there for pairs in at.bounds], dim=-1)
    count = there.sum(-1, keepdim=True).clamp(min=1)
    mean = _product(at.bounds) / count
    predicted = directions.towards((0.0,) * 4)
    ahead = _moved(at.bounds, predicted.bounds, _length(at.bounds, predicted, 1.0))
    left = _product(ahead) / count / mean.clamp(min=LEAST_PRODUCT)
    target, most = mean * left.clamp(0.0, 1.0) ** 3, MOST_CORRECTED * mean
    step = directions.towards(
        tuple((target - s * m).clamp(-most, most) for s, m in predicted.bounds)
    )
    length = _length(at.bounds, step, TO_BOUNDARY)
    y = torch.where(at.done, at.y, at.y + length * step.dy)
    u, w = at.u + length * step.du, at.w + length * step.dw
    found = at._replace(u=u, w=w, y=y, bounds=_moved(at.bounds, step.bounds, length))
    distance = _distance(of, found, count)
    closer = (distance < at.distance) & ~at.done
    least = torch.where(closer, distance, at.distance)
    lost = ~(distance < LOST * least) & (least < WITHIN_REACH)
    return found._replace(
        best=torch.where(closer, y, at.best),
        distance=least,
        done=at.done | (least <= 1.0) | lost | proves_infeasible(of, y),
        iterations=at.iterations + ~at.done,
    )


class Step(NamedTuple):
    """Changes of a point."""

    du: Tensor
    dw: Tensor
    dy: Tensor
    bounds: tuple[Change, ...]


class _Directions:
    """The steps from a point, by what products of slacks and multipliers they aim at.

    Parameters
    ----------
    of
        What is projected.
    at
        The point.
    """

    def __init__(self, of: Projections, at: Interior) -> None:
        self._of, self._at, (below, above, low, high) = of, at, at.bounds
        self._pull, self._off = of.batch.pull(at.y), _off(of, at)
        stiffness = 1.0 + below.multiplier / below.slack + above.multiplier / above.slack
        self._ease = torch.where(of.open, 1.0 / stiffness, 0.0)
        self._bounded = low.there | high.there
        held = low.multiplier / low.slack + high.multiplier / high.slack
        ease = torch.where(self._bounded, 1.0 / torch.where(self._bounded, held, 1.0), 0.0)
        self._ease_of_sums = torch.where(_is_unbounded(of), EASE_WITHOUT_BOUNDS, ease)
        diagonal = torch.diag_embed(self._ease_of_sums + PROXIMAL)
        self._equations = Equations(of.batch.gram(self._ease) + diagonal)

    def towards(self, products: tuple[Tensor | float, ...]) -> Step:
        """Return the step after which the products are what is given, to first order."""
        batch, at, ease = self._of.batch, self._at, self._ease_of_sums
        given = [p / pairs.slack for p, pairs in zip(products, at.bounds, strict=True)]
        force = self._of.eta + self._pull - at.u + given[0] - given[1]
        of_sums = torch.where(self._bounded, given[2] - given[3] - at.y, 0.0)
        right = ease * of_sums - self._off - batch.sums(self._ease * force)
        dy = self._equations.solve(right)
        du = self._ease * (force + batch.pull(dy))
        # of two formulas the one that rounding errors shrink in
        dw = torch.where(ease < 1.0, ease * (of_sums - dy), batch.sums(du) + self._off)
        dw = torch.where(self._bounded, dw, 0.0)
        changes = map(Pairs.change, at.bounds, (du, -du, dw, -dw), products)
        return Step(du, dw, dy, tuple(changes))


def _off(of: Projections, at: Interior) -> Tensor:
    """Return how far the sums of the variables are from those that stand for them."""
    return torch.where(_is_unbounded(of), 0.0, of.batch.sums(at.u) - at.w)


def _is_unbounded(of: Projections) -> Tensor:
    return (of.batch.low == -torch.inf) & (of.batch.high == torch.inf)


def _distance(of: Projections, at: Interior, count: Tensor) -> Tensor:
    """Return the largest of residuals and the mean product, in multiples of what is close."""
    below, above, _, _ = at.bounds
    pull = of.batch.pull(at.y)
    off = _off(of, at).abs().amax(-1, keepdim=True)
    force = at.u - of.eta - pull - below.multiplier + above.multiplier
    size = 1.0 + of.eta.abs() + pull.abs()
    force = torch.where(of.open, force.abs() / size, 0.0).amax(-1, keepdim=True)
    mean = _product(at.bounds) / count
    return torch.maximum(torch.maximum(off, force) / CLOSE, mean / SMALL_PRODUCT)


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
    """Return the length of a step that goes at most so far towards the nearest bound."""
    inverse = torch.cat([p.reach(c) for p, c in zip(bounds, step.bounds, strict=True)], dim=-1)
    return 1.0 / (inverse.amax(-1, keepdim=True) / most).clamp(min=1.0)
