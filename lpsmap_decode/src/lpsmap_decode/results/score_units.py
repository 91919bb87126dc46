"""The unit of the scores of each component: 1, or less if all its scores are small.

Gaps and tolerances are relative to the score of an assignment, but at least to this unit.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, Part

__all__ = ["in_units", "is_proved", "score_units", "unit_of"]


def in_units(
    part: Part, eta: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the unit of each component, and the scores in it; see `score_units`."""
    unit = score_units(part, eta, eta_v)
    if (unit == 1.0).all():  # there may be far more additionals than variables
        return unit, eta, eta_v
    return unit, eta / unit[part.component], eta_v / part.on_additionals(unit)


def score_units(part: Part, eta: FloatArray, eta_v: FloatArray) -> FloatArray:
    """Return the unit of each component: a power of two up to its largest score, but at most 1.

    Parameters
    ----------
    part
        The part.
    eta, eta_v
        Scores of its variables and of its additionals; only magnitudes of finite ones count. A
        component without a finite score other than 0 has unit 1.
    """
    return _units(part.largest_scores(eta, eta_v))


def unit_of(scores: FloatArray) -> float:
    """Return the unit of the scores of one component; see `score_units`."""
    magnitude = np.abs(scores[np.isfinite(scores)])
    return float(_units(magnitude.max(initial=0.0)))


def _units(largest: FloatArray) -> FloatArray:
    _, exponent = np.frexp(largest)  # a magnitude is at least half of 2 ** exponent
    small = (largest > 0.0) & (largest < 1.0)
    return np.where(small, np.ldexp(1.0, exponent - 1), 1.0)


def is_proved(
    score: FloatArray, bound: FloatArray, gap: float, unit: FloatArray | float = 1.0
) -> BoolArray:
    """Return where a bound proves that a score is the best, up to a relative gap."""
    size = np.maximum(unit, np.abs(np.where(np.isfinite(score), score, 0.0)))
    closed: BoolArray = (bound <= score + gap * size) | (bound == -np.inf)
    return closed
