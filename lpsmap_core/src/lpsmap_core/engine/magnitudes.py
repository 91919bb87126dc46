"""The huge scores of a component, and the moderate scores that stand in for them.

The scores of a component fall into *base* and *huge* ones if some are a hundred times as large as
all smaller ones. The entries of huge negative scores are *withheld* from the solve, which means
forbidden, unless they are *released*. That takes huge scores of one magnitude, the *level*, up to
differences of base size. A moderate number then stands in for the level, and
`lpsmap_core.engine.huge_scores` proves that it has the same solution.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.layout.arrangement import Spans
from lpsmap_core.layout.layout import Part
from lpsmap_core.layout.ragged import flags
from lpsmap_core.model.score_magnitude import largest_magnitude
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.compile import leaf

HUGE_RATIO = 100.0
"""Scores are huge if they are at least this many times as large as the largest smaller one."""

MAX_PRECISE = 1e8
"""Scores up to this are solved as they are if no proof succeeds."""

STAND_IN = 1e3
"""The multiple of the base scores that stands in for the level of released scores."""

MAX_FLOAT = float(np.finfo(np.float64).max)
"""The largest finite float64."""


def largest_magnitudes(part: Part, eta: FloatArray, eta_v: FloatArray) -> FloatArray:
    """Return the largest finite magnitude of the scores of every component."""
    largest = np.empty(part.n_components)
    _largest_finite(part.spans, eta, eta_v, largest)
    return largest


class Split:
    """Base and huge scores, over the variables and then the additionals of a part."""

    def __init__(self, part: Part, scores: FloatArray, largest: FloatArray) -> None:
        self.part, self.scores, self.largest = part, scores, largest
        self.owner = part.component_of_numbers
        n = part.n_components
        self.cut, self.base = np.zeros(n), np.ones(n)
        self.proven, self.unproven, self.considered = np.zeros((3, n), dtype=bool)
        self.huge, self.released = np.zeros((2, len(scores)), dtype=bool)
        self.raise_cut(largest > HUGE_RATIO)

    @property
    def withheld(self) -> BoolArray:
        """Entries that are forbidden because their scores are huge and negative."""
        return self.huge & ~self.released

    def raise_cut(self, chosen: BoolArray) -> BoolArray:
        """Raise the cut of some components to their next gap; return which have one."""
        cut, base = self.cut.copy(), np.ones(len(self.cut))
        _next_gap(self.part.spans, *self.split_entries(self.scores), chosen, cut, base)
        raised = chosen & np.isfinite(cut) & (base <= MAX_PRECISE)
        huge = np.isfinite(self.scores) & (np.abs(self.scores) >= cut[self.owner])
        positive = self.components_of(huge & (self.scores > 0.0))
        narrow = (base > 1.0) | (self.largest - cut <= cut / HUGE_RATIO)
        raised &= (self.largest > MAX_PRECISE) | (~positive & narrow)
        self.cut[raised], self.base[raised] = cut[raised], base[raised]
        self.considered |= raised
        of_raised = raised[self.owner]
        self.huge[of_raised] = huge[of_raised]
        self.released[of_raised] = (huge & (self.scores > 0.0))[of_raised]
        return raised

    @property
    def without_level(self) -> BoolArray:
        """Components with released scores whose huge scores have no common magnitude."""
        spread = self.largest - self.cut > HUGE_RATIO * self.base
        return self.components_of(self.released) & spread

    @property
    def scaled(self) -> BoolArray:
        """Components that are not split but too large, so that all scores are scaled down."""
        return ~self.considered & (self.largest > MAX_PRECISE)

    @property
    def shrunk(self) -> FloatArray:
        """Ratio of the released or scaled scores to their stand-ins."""
        ratio = np.maximum(self.largest / self.unit(), 1.0)
        return np.where(self.components_of(self.released) | self.scaled, ratio, 1.0)

    def give_up(self, chosen: BoolArray) -> None:
        """Solve some components as they are, without a split."""
        self.huge[chosen[self.owner]] = False
        self.released[chosen[self.owner]] = False
        self.considered[chosen] = False

    def reduced(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores to solve, of variables and additionals."""
        scores = np.where(self.withheld, -np.inf, self.scores)
        stand_in = self.stand_in()
        scores = np.where(self.scaled[self.owner] & np.isfinite(scores), stand_in, scores)
        return self.split_entries(np.where(self.released, self.rest() + stand_in, scores))

    def rest(self) -> FloatArray:
        """Return the differences of released scores from their level, zero for all others."""
        level = np.copysign(self.cut[self.owner], self.scores)
        return np.where(self.released, self.scores - level, 0.0)

    def unit(self) -> FloatArray:
        """Return the stand-in for the level of every component."""
        base = self.base.copy()
        np.maximum.at(base, self.owner, np.abs(self.rest()))
        return STAND_IN * base

    def stand_in(self) -> FloatArray:
        """Return the stand-ins for scores.

        They are those of huge scores in components with released ones, of all scores in scaled
        components, and zero elsewhere.
        """
        chosen = self.huge & self.components_of(self.released)[self.owner]
        unit = self.unit()[self.owner]
        stand_in: FloatArray = np.where(chosen, np.copysign(unit, self.scores), 0.0)
        scale = np.where(self.scaled, STAND_IN / np.maximum(self.largest, 1.0), 0.0)
        finite = np.where(np.isfinite(self.scores), self.scores, 0.0)
        stand_in += finite * scale[self.owner]
        return stand_in

    def components_of(self, entries: BoolArray) -> BoolArray:
        """Return the components of some entries."""
        return flags(self.owner[entries], len(self.cut))

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
        large += HUGE_RATIO < abs(score) <= MAX_FLOAT
    return large > 0


@leaf
def _largest_finite(spans: Spans, eta: FloatArray, eta_v: FloatArray, out: FloatArray) -> None:
    """Write the largest finite magnitude of the scores of every component."""
    for c in range(len(out)):
        out[c], _ = _largest_up_to(c, MAX_FLOAT, spans, eta, eta_v)


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
            most = HUGE_RATIO * min(below, MAX_FLOAT / HUGE_RATIO)  # which stays finite
            largest, beyond = _largest_up_to(c, most, spans, eta, eta_v)
            next_below = max(below, largest)
        cut[c], base[c] = beyond, below
