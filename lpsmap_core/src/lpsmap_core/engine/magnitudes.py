"""The huge scores of a component, and the moderate scores that stand in for them.

The scores of a component fall into *base* and *huge* ones if some are a hundred times as large as
all smaller ones. The entries of huge negative scores are *withheld* from the solve, which means
forbidden, unless they are *released*. That takes huge scores of one magnitude, the *level*, up to
differences of base size. A moderate number then stands in for the level, and
`lpsmap_core.engine.huge_scores` proves that it has the same solution.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.layout.layout import Part
from lpsmap_core.layout.ragged import flags
from lpsmap_core.model.score_magnitude import largest_magnitude
from lpsmap_jit.arrays import BoolArray, FloatArray

HUGE_RATIO = 100.0
"""Scores are huge if they are at least this many times as large as the largest smaller one."""

MAX_PRECISE = 1e8
"""Scores up to this are solved as they are if no proof succeeds."""

STAND_IN = 1e3
"""The multiple of the base scores that stands in for the level of released scores."""

MAX_FLOAT = float(np.finfo(np.float64).max)
"""The largest finite float64."""


class Split:
    """Base and huge scores, over the variables and then the additionals of a part."""

    def __init__(
        self, part: Part, eta: FloatArray, eta_v: FloatArray, skip: BoolArray | None = None
    ) -> None:
        self.part, self.scores = part, np.concatenate([eta, eta_v])
        self.owner, n = part.component_of_numbers, part.n_components
        self._magnitude: FloatArray = np.abs(self.scores)
        self.largest = part.largest_scores(eta, eta_v)
        """For each component, the largest finite magnitude of its scores; 0 to skip it."""
        if skip is not None:
            self.largest[skip] = 0.0
        self.cut, self.base = np.zeros(n), np.ones(n)
        self.proven, self.unproven, self.considered = np.zeros((3, n), dtype=bool)
        self.huge, self.released = np.zeros((2, len(self.scores)), dtype=bool)
        self.raise_cut(self.largest > HUGE_RATIO)

    @property
    def withheld(self) -> BoolArray:
        """Entries that are forbidden because their scores are huge and negative."""
        return self.huge & ~self.released

    def raise_cut(self, chosen: BoolArray) -> BoolArray:
        """Raise the cut of some components to their next gap; return which have one."""
        cut, base = self._next_gap()
        raised = chosen & np.isfinite(cut) & (base <= MAX_PRECISE)
        huge = np.isfinite(self.scores) & (self._magnitude >= cut[self.owner])
        positive = self.components_of(huge & (self.scores > 0.0))
        narrow = (base > 1.0) | (self.largest - cut <= cut / HUGE_RATIO)
        raised &= (self.largest > MAX_PRECISE) | (~positive & narrow)
        self.cut[raised], self.base[raised] = cut[raised], base[raised]
        self.considered |= raised
        of_raised = raised[self.owner]
        self.huge[of_raised] = huge[of_raised]
        self.released[of_raised] = (huge & (self.scores > 0.0))[of_raised]
        return raised

    def _next_gap(self) -> tuple[FloatArray, FloatArray]:
        """Return the smallest magnitude of each component above its next gap, and that below.

        The first is infinite without a gap, and the second is at least 1.
        """
        below = np.maximum(1.0, self.cut)
        while True:
            limit = HUGE_RATIO * np.minimum(below, MAX_FLOAT / HUGE_RATIO)  # which stays finite
            largest, beyond = self._largest_up_to(limit)
            if (largest <= below).all():
                return beyond, below
            below = np.maximum(below, largest)

    def _largest_up_to(self, limit: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the largest magnitude of each component up to a limit, and the next one above."""
        magnitude, owner, within = self._magnitude, self.owner, self._magnitude <= limit[self.owner]
        largest, beyond = np.zeros(len(limit)), np.full(len(limit), np.inf)
        np.maximum.at(largest, owner[within], magnitude[within])
        np.minimum.at(beyond, owner[~within], magnitude[~within])
        return largest, beyond

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


def any_large(scores: FloatArray) -> bool:
    """Return whether any finite score is so large that its component may have to be split."""
    if largest_magnitude(scores) <= HUGE_RATIO:
        return False
    return bool(((np.abs(scores) > HUGE_RATIO) & np.isfinite(scores)).any())
