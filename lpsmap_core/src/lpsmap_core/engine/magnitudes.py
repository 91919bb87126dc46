"""The huge scores of a component, and the moderate scores that stand in for them.

The scores of a component fall into *base* and *huge* ones if some are a hundred times as large as
all smaller ones. The entries of huge negative scores are *withheld* from the solve, which means
forbidden, unless they are *released*. Moderate numbers then stand in for released scores, and
`lpsmap_core.engine.huge_scores` proves that they have the same solution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.arrangement import Spans
from lpsmap_core.layout.layout import Part
from lpsmap_core.model.unused import largest_magnitude
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf

__all__ = [
    "HUGE_RATIO",
    "PENALTIES",
    "PRECISION_LIMIT",
    "Ladder",
    "Split",
    "any_large",
    "largest_magnitudes",
]

HUGE_RATIO = 100.0
"""Scores are huge if they are at least this many times as large as the largest smaller one."""

PRECISION_LIMIT = 1e8
"""Scores up to this are solved as they are if no proof succeeds."""

PENALTIES = (1e3, 1e6)
"""Multiples K of the base scores that stand in for released scores, tried in this order."""

SMALLEST = float(np.finfo(np.float64).tiny)
"""The cut of a component whose scores are all too large and have no gap."""

LARGEST_FLOAT = float(np.finfo(np.float64).max)
"""The largest finite float64."""


def largest_magnitudes(part: Part, eta: FloatArray, eta_v: FloatArray) -> FloatArray:
    """Return the largest finite magnitude of the scores of every component."""
    largest = np.empty(part.n_components)
    _largest_finite(part.spans, eta, eta_v, largest)
    return largest


class Ladder(NamedTuple):
    """Stand-ins for huge scores: levels that are far apart become the closer steps of a ladder.

    With the levels' ratios to the largest of their step c, the stand-ins are ``K_k c`` for moderate
    ``K_1 < K_2 < ...`` and the true levels ``M_k c``. If ``e + sum_k K_k c - mu`` is in the normal
    cone N, and for every k ``T_k = sum of K_j c over the steps j >= k``, so is the true ``e + sum_k
    M_k c - mu``, which adds multiples of the ``T_k`` where ``M_k / K_k`` grows with k.
    """

    stand_in: FloatArray
    rest: FloatArray
    """Differences of released scores from their levels, zero for all others."""
    step: IntArray
    unit: FloatArray
    """For each component, the stand-in of the largest level of its first step."""


class Split:
    """Base and huge scores, over the variables and then the additionals of a part."""

    def __init__(self, part: Part, scores: FloatArray, largest: FloatArray) -> None:
        self.part, self.scores, self.largest = part, scores, largest
        self.owner = part.component_of_numbers
        n = part.n_components
        self.cut, self.base = np.zeros(n), np.ones(n)
        self.penalty = np.full(n, PENALTIES[0])
        self.proven, self.unproven = np.zeros((2, n), dtype=bool)
        self.huge = np.zeros(len(scores), dtype=bool)
        self.released = self.huge.copy()
        self.considered = np.zeros(n, dtype=bool)
        self.raise_cut(largest > HUGE_RATIO)

    @property
    def withheld(self) -> BoolArray:
        """Entries that are forbidden because their scores are huge and negative."""
        return self.huge & ~self.released

    def raise_cut(self, chosen: BoolArray) -> BoolArray:
        """Raise the cut of some components to their next gap; return which have one."""
        cut, base = self.cut.copy(), np.ones(len(self.cut))
        n_variables = self.part.n_variables
        eta, eta_v = self.scores[:n_variables], self.scores[n_variables:]
        _next_gap(self.part.spans, eta, eta_v, chosen, cut, base)
        # without a gap above base scores of moderate size, no score is base
        too_large = np.isinf(cut) | (base > PRECISION_LIMIT)
        cut[chosen & (self.cut == 0.0) & (self.largest > PRECISION_LIMIT) & too_large] = SMALLEST
        base[cut == SMALLEST] = 1.0
        cut[base > PRECISION_LIMIT] = np.inf
        found = chosen & np.isfinite(cut)
        huge = np.isfinite(self.scores) & (np.abs(self.scores) >= cut[self.owner])
        positive = np.zeros(len(cut), dtype=bool)
        positive[self.owner[huge & (self.scores > 0.0)]] = True
        narrow = (base > 1.0) | (self.largest - cut <= cut / HUGE_RATIO)
        found &= (self.largest > PRECISION_LIMIT) | (~positive & narrow)
        self.cut[found], self.base[found] = cut[found], base[found]
        self.considered |= found
        of_found = found[self.owner]
        self.huge[of_found] = huge[of_found]
        self.released[of_found] = (huge & (self.scores > 0.0))[of_found]
        return found

    @property
    def shrunk(self) -> FloatArray:
        """Ratio of the released scores to their stand-ins."""
        ratio = np.ones(len(self.cut))
        if self.released.any():
            stand_in = np.abs(self.ladder().stand_in[self.released])
            owner = self.owner[self.released]
            np.maximum.at(ratio, owner, self.largest[owner] / np.maximum(stand_in, 1.0))
        return ratio

    def give_up(self, chosen: BoolArray) -> None:
        """Solve some components as they are, without a split."""
        self.huge[chosen[self.owner]] = False
        self.released[chosen[self.owner]] = False
        self.considered[chosen] = False

    def reduced(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores to solve, of variables and additionals."""
        scores = np.where(self.withheld, -np.inf, self.scores)
        if self.released.any():
            ladder = self.ladder()
            scores = np.where(self.released, ladder.rest + ladder.stand_in, scores)
        return self.split_entries(scores)

    def ladder(self) -> Ladder:
        """Return the stand-ins for the huge scores of components with released ones."""
        stand_in, rest = np.zeros((2, len(self.scores)))
        step = np.zeros(len(self.scores), dtype=np.int64)
        released = np.flatnonzero(self.released)
        if not released.size:
            return Ladder(stand_in, rest, step, self.penalty * self.base)
        level, base = self.scores.copy(), self.base.copy()
        level[released] = self._levels(released)
        rest[released] = self.scores[released] - level[released]
        np.maximum.at(base, self.owner[released], np.abs(rest[released]))
        huge = np.flatnonzero(self.huge & self.components_of(self.released)[self.owner])
        order = huge[np.lexsort((np.abs(level[huge]), self.owner[huge]))]
        owner, size = self.owner[order], np.abs(level[order])
        first = np.append(True, owner[1:] != owner[:-1])
        begins = first | np.append(True, size[1:] / HUGE_RATIO > size[:-1])
        group = np.cumsum(begins) - 1
        step[order] = group - np.maximum.accumulate(np.where(first, group, 0))
        top = np.maximum.reduceat(size, np.flatnonzero(begins))[group]
        unit = self.penalty * base
        stand_in[order] = unit[owner] * HUGE_RATIO ** step[order] * (level[order] / top)
        return Ladder(stand_in, rest, step, unit)

    def _levels(self, released: IntArray) -> FloatArray:
        """Return the levels of released scores; those that differ by base scores share a level."""
        order = np.lexsort((self.scores[released], self.owner[released]))
        scores, owner = self.scores[released][order], self.owner[released][order]
        with np.errstate(over="ignore"):
            apart = np.diff(scores) > HUGE_RATIO * self.base[owner[1:]]
        begins = np.flatnonzero(np.append(True, apart | (np.diff(owner) > 0))[: len(order)])
        length = np.diff(np.append(begins, len(order)))
        # the score nearest to zero, so that differences stay exact
        nearest = np.where(scores[begins] > 0.0, begins, begins + length - 1)
        level = np.empty(len(order))
        level[order] = np.repeat(scores[nearest], length)
        return level

    def components_of(self, entries: BoolArray) -> BoolArray:
        """Return the components of some entries."""
        found = np.zeros(len(self.cut), dtype=bool)
        found[self.owner[entries]] = True
        return found

    def split_entries(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split the numbers of all entries into those of variables and of additionals."""
        n_variables = self.part.n_variables
        return scores[:n_variables], scores[n_variables:]


# -------------------------------------------------------------------- kernels


@leaf
def _largest_up_to(
    c: int, limit: float, spans: Spans, eta: FloatArray, eta_v: FloatArray
) -> tuple[float, float]:
    """Return a component's largest magnitude up to a limit, and its smallest finite one above."""
    largest, beyond = 0.0, np.inf
    for v in range(spans.first_variable[c], spans.first_variable[c + 1]):
        if abs(eta[v]) <= limit:
            largest = max(largest, abs(eta[v]))
        else:
            beyond = min(beyond, abs(eta[v]))
    if len(eta_v) > 0:
        for b in range(len(spans.first_factor) - 1):
            first = spans.first_factor[b] + spans.first_row[c, b]
            last = spans.first_factor[b] + spans.first_row[c + 1, b]
            for i in range(spans.additional_offsets[first], spans.additional_offsets[last]):
                if abs(eta_v[i]) <= limit:
                    largest = max(largest, abs(eta_v[i]))
                else:
                    beyond = min(beyond, abs(eta_v[i]))
    return largest, beyond


@leaf
def any_large(scores: FloatArray) -> bool:
    """Return whether any finite score is so large that its component may have to be split."""
    if largest_magnitude(scores) <= HUGE_RATIO:
        return False
    large = 0
    for score in scores:
        large += HUGE_RATIO < abs(score) <= LARGEST_FLOAT
    return large > 0


@leaf
def _largest_finite(spans: Spans, eta: FloatArray, eta_v: FloatArray, out: FloatArray) -> None:
    """Write the largest finite magnitude of the scores of every component."""
    for c in range(len(out)):
        out[c], _ = _largest_up_to(c, LARGEST_FLOAT, spans, eta, eta_v)


@leaf
def _next_gap(
    spans: Spans,
    eta: FloatArray,
    eta_v: FloatArray,
    chosen: BoolArray,
    cut: FloatArray,
    base: FloatArray,
) -> None:
    """Write the smallest magnitude above the next gap for chosen components, to `cut`.

    It is infinite without a gap. `base` becomes the largest magnitude below it, at least 1.
    """
    for c in range(len(cut)):
        if not chosen[c]:
            continue
        below, next_below = 0.0, max(1.0, cut[c])
        while next_below > below:
            below = next_below
            most = HUGE_RATIO * min(below, LARGEST_FLOAT / HUGE_RATIO)  # which stays finite
            largest, beyond = _largest_up_to(c, most, spans, eta, eta_v)
            next_below = max(below, largest)
        cut[c], base[c] = beyond, below
