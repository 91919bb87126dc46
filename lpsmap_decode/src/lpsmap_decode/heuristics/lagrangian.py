"""Lagrangian repair: prices on violated rows, until the leading factors' structures meet them.

Leading factors choose their best structures, given scores less the prices of the rows of the
others. Prices of violated rows rise until no row is violated. From then on they follow subgradients
of the dual function with Polyak's (1969) steps, so that the structures become better. Other factors
without rows, or with scores of their own, have a copy of their variables, with a price for every
copy (Komodakis et al. 2007).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.diving import dive
from lpsmap_decode.heuristics.leaders import Oracles, in_groups, leaders_of, others_of

__all__ = ["Prices", "price_rows"]

FIRST_STEP, LATER_STEP, GROWTH, MAX_REPAIRS = 0.05, 0.005, 1.3, 50
"""The first step of a repair, relative to the mean score, if the prices are unknown and if they are
known; its growth, and the number of steps."""

DESCENT_STEPS, STEPS_WITHOUT_GAIN = 100, 10
"""Steps of a descent, and those without a better value before they become shorter."""

TOWARDS_MEANS = 4.0
"""How far the first dive prefers the marginals, relative to the mean score."""

NOISE = 0.1
"""Largest noise of the scores in later repairs, relative to their mean."""


class Prices(NamedTuple):
    """Prices of the rows over variables, and of the copies of other factors."""

    row: IntArray
    """For each entry of the rows, its row, variable and coefficient."""
    variable: IntArray
    coefficient: FloatArray
    low: FloatArray
    high: FloatArray
    of_rows: FloatArray
    of_copies: FloatArray

    def priced(self, scores: FloatArray, copies: Oracles) -> FloatArray:
        """Return scores of variables less all prices."""
        paid = self.of_rows[self.row] * self.coefficient
        n = len(scores)
        less = np.bincount(self.variable, paid, n) + np.bincount(copies.variable, self.of_copies, n)
        left: FloatArray = scores - less
        return left

    def sums(self, chosen: BoolArray) -> FloatArray:
        """Return the sums of the rows."""
        terms = self.coefficient * chosen[self.variable]
        return np.bincount(self.row, terms, len(self.low)).astype(np.float64)


def no_prices(component: Component, copies: Oracles) -> Prices:
    """Return prices of zero on the rows that have variables only."""
    rows, n = component.rows, component.part.n_variables
    row = np.repeat(np.arange(len(rows.low)), np.diff(rows.first))
    plain = np.ones(len(rows.low), dtype=bool)
    plain[-1] = False
    plain[row[rows.column >= n]] = False
    entry = plain[row]
    return Prices(
        row=(np.cumsum(plain) - 1)[row[entry]],
        variable=rows.column[entry],
        coefficient=rows.coefficient[entry],
        low=rows.low[plain],
        high=rows.high[plain],
        of_rows=np.zeros(int(plain.sum())),
        of_copies=np.zeros(len(copies.variable)),
    )


class _Look(NamedTuple):
    """What the factors choose at some prices."""

    excess: FloatArray
    """For each row, by how much its sum is too high, or too low if negative."""
    sums: FloatArray
    apart: FloatArray
    """For each copy, 1 if only the leader's variable is on, -1 if only the copy is."""
    value: float
    """The score of the structures less prices, without the sides of rows."""


class _Pricing:
    """Leading factors, rows and copies of a component, and their prices."""

    def __init__(self, component: Component) -> None:
        leads = leaders_of(component)
        others = others_of(component, leads)
        self.component, self._leaders = component, Oracles(component, leads)
        value = component.implied[: component.part.n_variables]
        self._scores = np.where(value == 0, -np.inf, component.eta)
        self._copies = Oracles(component, others)
        self.groups = [self._leaders, *in_groups(component, others)]
        self.scale = float(np.abs(component.gains).mean()) or 1.0
        self.rng = np.random.default_rng(0)
        self.prices = no_prices(component, self._copies)

    def priced(self, prices: Prices, noise: float) -> FloatArray:
        """Return the scores of the variables less all prices, with some noise."""
        scores = prices.priced(self._scores, self._copies)
        if noise:
            scores = scores + noise * self.scale * self.rng.standard_normal(len(scores))
        return scores

    def look(self, prices: Prices, noise: float = 0.0, nearest: bool = False) -> _Look:
        """Let the factors choose, and offer it; copies choose near the leaders if `nearest`."""
        leaders, copies = self._leaders, self._copies
        scores = self.priced(prices, noise)
        chosen = scores > 0.0
        chosen[leaders.variable] = False
        value = float(scores[chosen].sum())
        chosen[leaders.variable], of_leaders = leaders.best(scores[leaders.variable])
        sums = prices.sums(chosen)
        excess = np.maximum(sums - prices.high, 0.0) - np.maximum(prices.low - sums, 0.0)
        if not excess.any():
            self.component.offer(chosen)
        on = np.where(chosen[copies.variable], 1.0, 0.0)
        near = self.scale * (2.0 * on - 1.0) if nearest else 0.0
        wanted, of_copies = copies.best(prices.of_copies + near)
        return _Look(excess, sums, on - wanted, value + of_leaders + of_copies)

    def repair(self, step: float, noise: float) -> Iterator[None]:
        """Raise prices of what is violated until nothing is, without keeping the prices."""
        rows, copies = self.prices.of_rows.copy(), self.prices.of_copies.copy()
        prices, step = self.prices._replace(of_rows=rows, of_copies=copies), step * self.scale
        for _ in range(MAX_REPAIRS):
            look = self.look(prices, noise, nearest=True)
            yield
            if not look.excess.any() and not look.apart.any():
                return
            rows += step * np.sign(look.excess)
            copies += step * look.apart
            step = min(step * GROWTH, self.scale)

    def descend(self, n: int) -> Iterator[None]:
        """Lower the dual function by `n` of Polyak's steps towards the best score."""
        prices, least, n_calm, share = self.prices, np.inf, 0, 1.0
        for _ in range(n):
            look = self.look(prices)
            yield
            paid = prices.of_rows != 0.0
            side = np.where(paid, np.where(prices.of_rows > 0.0, prices.high, prices.low), 0.0)
            slope = np.where(paid, look.sums - side, look.excess)
            value = look.value + float(prices.of_rows @ side)
            n_calm, least = (0, value) if value < least else (n_calm + 1, least)
            if n_calm >= STEPS_WITHOUT_GAIN:
                n_calm, share = 0, 0.5 * share
            size = float(slope @ slope + look.apart @ look.apart)
            spare = value - self.component.score
            if size == 0.0 or spare <= 0.0:
                return
            moved = prices.of_rows + share * spare / size * slope
            moved = np.where(np.isinf(prices.high), np.minimum(moved, 0.0), moved)
            prices.of_rows[:] = np.where(np.isinf(prices.low), np.maximum(moved, 0.0), moved)
            prices.of_copies[:] += share * spare / size * look.apart


def price_rows(component: Component) -> Iterator[None]:
    """Offer structures of the leading factors; yield after every choice of theirs."""
    pricing, step, noise, n = _Pricing(component), FIRST_STEP, 0.0, component.part.n_variables
    by_means = component.gains[:n] + TOWARDS_MEANS * pricing.scale * (component.means - 0.5)
    yield from pricing.repair(step, noise)
    yield from dive(component, pricing.groups, by_means)
    while True:
        if component.found:
            yield from pricing.descend(DESCENT_STEPS)
            step = LATER_STEP
        guide = pricing.priced(pricing.prices, noise)
        yield from dive(component, pricing.groups, guide)
        yield from pricing.repair(step, noise)
        noise = NOISE * pricing.rng.random()
