"""Lagrangian repair: prices on violated rows, until the leading factors' structures meet them.

Leading factors choose their best structures, given scores less the prices of the rows of the
others. Prices of violated rows rise until no row is violated. Other factors without rows, or with
scores of their own, have a copy of their variables, with a price for every copy (Komodakis et al.
2007). Later repairs start from scores with noise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.diving import dive
from lpsmap_decode.heuristics.leaders import Oracles, in_groups, leaders_of

__all__ = ["price_rows"]

FIRST_STEP, GROWTH, MAX_REPAIRS = 0.05, 1.3, 50
"""The first step of a repair, relative to the mean score; its growth, and the number of steps."""

TOWARDS_MEANS = 4.0
"""How far the first dive prefers the marginals, relative to the mean score."""

NOISE = 0.1
"""Largest noise of the scores in later repairs, relative to their mean."""


class _Pricing:
    """Leading factors, rows over variables and copies of a component, which can be priced."""

    def __init__(self, component: Component) -> None:
        leads, (_, exact) = leaders_of(component), component.described
        scored = np.diff(component.part.spans.additional_offsets) > 0
        others = ~leads & (~exact | scored)  # their rows do not tell what they allow and score
        self._component, self._leaders = component, Oracles(component, leads)
        value = component.implied[: component.part.n_variables]
        self._scores = np.where(value == 0, -np.inf, component.eta)
        self._copies = Oracles(component, others)
        self.groups = [self._leaders, *in_groups(component, others)]
        self.scale = float(np.abs(component.gains).mean()) or 1.0
        self._rng = np.random.default_rng(0)
        rows, n = component.rows, component.part.n_variables
        row = np.repeat(np.arange(len(rows.low)), np.diff(rows.first))
        plain = np.ones(len(rows.low), dtype=bool)  # rows that have variables only
        plain[-1] = False
        plain[row[rows.column >= n]] = False
        entry = plain[row]
        self._row, self._variable = (np.cumsum(plain) - 1)[row[entry]], rows.column[entry]
        self._coefficient = rows.coefficient[entry]
        self._low, self._high = rows.low[plain], rows.high[plain]

    def scores(self, noise: float) -> FloatArray:
        """Return the scores of the variables, with some noise."""
        if not noise:
            return self._scores
        size = noise * self.scale
        return self._scores + size * self._rng.standard_normal(len(self._scores))

    def repair(self, noise: float) -> Iterator[None]:
        """Raise prices of what is violated until nothing is, and offer what the factors choose.

        Copies choose near the leaders.
        """
        leaders, copies, n = self._leaders, self._copies, len(self._scores)
        of_rows, of_copies = np.zeros(len(self._low)), np.zeros(len(copies.variable))
        step = FIRST_STEP * self.scale
        for _ in range(MAX_REPAIRS):
            paid = np.bincount(self._variable, of_rows[self._row] * self._coefficient, n)
            scores = self.scores(noise) - paid - np.bincount(copies.variable, of_copies, n)
            chosen: BoolArray = scores > 0.0
            chosen[leaders.variable] = leaders.best(scores[leaders.variable])
            terms = self._coefficient * chosen[self._variable]
            sums = np.bincount(self._row, terms, len(self._low))
            excess = np.maximum(sums - self._high, 0.0) - np.maximum(self._low - sums, 0.0)
            if not excess.any():
                self._component.offer(chosen)
            on = np.where(chosen[copies.variable], 1.0, 0.0)
            apart = on - copies.best(of_copies + self.scale * (2.0 * on - 1.0))
            yield
            if not excess.any() and not apart.any():
                return
            of_rows += step * np.sign(excess)
            of_copies += step * apart
            step = min(step * GROWTH, self.scale)


def price_rows(component: Component) -> Iterator[None]:
    """Offer structures of the leading factors; yield after every choice of theirs."""
    pricing, rng, n = _Pricing(component), np.random.default_rng(0), component.part.n_variables
    by_means = component.gains[:n] + TOWARDS_MEANS * pricing.scale * (component.means - 0.5)
    yield from pricing.repair(0.0)
    yield from dive(component, pricing.groups, by_means)
    noise = 0.0
    while True:
        yield from dive(component, pricing.groups, pricing.scores(noise))
        yield from pricing.repair(noise)
        noise = NOISE * rng.random()
