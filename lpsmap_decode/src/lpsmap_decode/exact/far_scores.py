"""Scores and bounds of rescaled components, in terms of the given scores."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, Part
from lpsmap_decode.results.assignment_score import sums_of
from lpsmap_decode.results.score_units import is_proved, score_units

__all__ = ["in_given_scale"]

GAP_MARGIN = 1e-12
"""Relative safety margin of a gap that is transferred between scales."""


def in_given_scale(
    part: Part,
    given: tuple[FloatArray, FloatArray],
    far: BoolArray,
    chosen: BoolArray,
    v: FloatArray,
    score: FloatArray,
    bound: FloatArray,
    gap: float,
) -> tuple[FloatArray, FloatArray]:
    """Return scores and bounds of assignments in units of the given scores.

    A bound that is not a proof becomes infinite.

    Parameters
    ----------
    part, given
        The part, and the scores of its variables and additionals before `reduce_dominant_scores`.
    far
        For each component, whether `reduce_dominant_scores` rescaled it.
    chosen, v
        An assignment of the part's variables, and of its additionals.
    score, bound
        For each component, the score of the assignment, ``-inf`` if it is not allowed, and a bound
        on all others.
    gap
        Relative difference between score and bound that counts as a proof.
    """
    if not far.any():
        return score, bound
    largest, small = np.finfo(np.float64).max, 2.0**-40
    unit = score_units(part, *given)
    with np.errstate(over="ignore", invalid="ignore"):
        found = sums_of(part, *given, chosen, v)
        # sums may overflow, if only in between
        scaled = np.clip(
            sums_of(part, small * given[0], small * given[1], chosen, v) / small, -largest, largest
        )
        found = np.where(np.isfinite(found), found, scaled)
        # keep the relative gap
        share = np.clip(
            (bound - score) / np.maximum(1.0, np.abs(score)), 0.0, (1.0 - GAP_MARGIN) * gap
        )
        highest = found + share * np.maximum(unit, np.abs(found))
    proved = is_proved(score, bound, gap)
    bound = np.where(far & (bound > -np.inf), np.where(proved, highest, np.inf), bound)
    return np.where(far & (score > -np.inf), found, score), bound
