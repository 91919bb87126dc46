"""Finite scores in place of the infinite local scores of forced slots.

The copies of a variable with score ``-inf`` have the local score ``-inf``, or ``inf`` in a negated
slot: the slot is forced. Oracles and closed forms compute with scores, so they get finite ones. In
each factor these are large enough to outweigh all its other scores.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.records import Factors
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf

NOTHING_FORBIDDEN: ByteArray = np.empty(0, dtype=np.int8)

FORBIDDEN_MULTIPLE = 1e6
"""Score of a forbidden additional, as a multiple of the largest magnitude of scores (at least 1).
"""

CLOSED_FORM_MULTIPLE = 1e6
"""Score of a forced slot for closed forms, as a multiple of the summed magnitudes of all other
scores, and of the slots' `exchange_rate`. Closed forms lose no digits by it."""

ORACLE_MULTIPLE = 1e3
"""The same for MAP oracles. Their structures have entries of 0 and 1, or fractions that are not
small. They sum scores, and a sum loses as many digits as this multiple has."""


SCORE_LIMIT = 1e300
"""Maximum magnitude of scores for oracles, so that sums of a million scores stay finite."""


@leaf
def clip_scores(scores: FloatArray) -> None:
    """Clip scores that overflowed or are NaN, because oracles may crash on them.

    The resulting solution is invalid, which `lpsmap_core.engine.soundness` detects.
    """
    for j in range(len(scores)):
        score = scores[j] if scores[j] < SCORE_LIMIT else SCORE_LIMIT  # NaN is not less
        scores[j] = score if score > -SCORE_LIMIT else -SCORE_LIMIT


@leaf
def exchange_rate(first: int, end: int, link_parameter: FloatArray) -> float:
    """Return how much more of a constraint the largest slot of a factor uses than the smallest.

    The slots of a knapsack trade scores for costs: a forced slot outweighs the others only if its
    score is this many times larger. Without a link parameter, 1.
    """
    largest, smallest = 0.0, np.inf
    for i in range(first, min(end, len(link_parameter))):
        size = abs(link_parameter[i])
        if size > 0.0:
            largest, smallest = max(largest, size), min(smallest, size)
    return largest / smallest if largest > smallest else 1.0


@leaf
def make_finite(
    scores: FloatArray, eta_v: FloatArray, forbidden: ByteArray, multiple: float
) -> None:
    """Replace the infinite scores of one factor's slots by finite ones.

    `forbidden` says for each additional whether it is forbidden. The multiple is
    `CLOSED_FORM_MULTIPLE` or `ORACLE_MULTIPLE`, times the `exchange_rate` of the slots.
    """
    total, n_forced = 1.0, 0
    for score in scores:
        if abs(score) == np.inf:
            n_forced += 1
        else:
            total += 1.0 + abs(score)
    if n_forced == 0:
        return
    for i in range(len(eta_v)):
        if not forbidden[i]:
            total += abs(eta_v[i])
    for j in range(len(scores)):
        if abs(scores[j]) == np.inf:
            scores[j] = np.copysign(multiple * total, scores[j])


@leaf
def make_rows_finite(
    rows: IntArray, factors: Factors, a: FloatArray, eta_v: FloatArray, forbidden: ByteArray
) -> None:
    """Replace the infinite local scores of a bucket's factors, for closed forms."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    for f in rows:
        lo, hi = offsets[f], offsets[f + 1]
        first, last = additional_offsets[f], additional_offsets[f + 1]
        multiple = CLOSED_FORM_MULTIPLE * exchange_rate(lo, hi, factors.link_parameter)
        make_finite(a[lo:hi], eta_v[first:last], forbidden[first:last], multiple)
