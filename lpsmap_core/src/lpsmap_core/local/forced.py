"""Scores that decide: what factors see in place of the infinite local scores of forced slots.

The copies of a variable of score ``-inf`` have the local score ``-inf``, or ``inf`` in a negated
slot: the slot is forced. Oracles and closed forms do arithmetic with scores, so that they get
finite ones: for every factor as large as it takes to outweigh all else in it.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.records import Factors
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf

__all__ = ["CLOSED_FORM", "FORBIDDEN", "NOTHING_BARRED", "ORACLE", "decide", "decide_rows", "limit"]


NOTHING_BARRED: ByteArray = np.empty(0, dtype=np.int8)

FORBIDDEN = 1e6
"""A forbidden additional's score, as a multiple of the largest magnitude of scores (at least 1)."""

CLOSED_FORM = 1e6
"""A forced slot's score for closed forms, in units of the summed magnitudes of all other scores.
Costs of a knapsack trade off against it, so that it is large; closed forms keep their digits."""

ORACLE = 1e3
"""The same for MAP oracles, whose structures have zeros and ones, or fractions that are not small.
They add scores up, and a sum with such a score loses as many digits as it has."""


LIMIT = 1e300
"""Oracles get no larger scores, so that sums of a million stay finite."""


@leaf
def limit(scores: FloatArray) -> None:
    """Make numbers finite that overflowed, or are none: oracles may crash of such scores.

    What comes of them is no solution, which is noticed elsewhere.
    """
    for j in range(len(scores)):
        score = scores[j] if scores[j] < LIMIT else LIMIT  # NaN is not less
        scores[j] = score if score > -LIMIT else -LIMIT


@leaf
def decide(scores: FloatArray, eta_v: FloatArray, barred: ByteArray, multiple: float) -> None:
    """Replace the infinite scores of one factor's slots by finite ones.

    Parameters
    ----------
    scores
        The slots' scores, finite or infinite.
    eta_v
        The additionals' scores.
    barred
        For each additional, whether it is forbidden.
    multiple
        `CLOSED_FORM` or `ORACLE`.
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
        if not barred[i]:
            total += abs(eta_v[i])
    for j in range(len(scores)):
        if abs(scores[j]) == np.inf:
            scores[j] = np.copysign(multiple * total, scores[j])


@leaf
def decide_rows(
    rows: IntArray, factors: Factors, a: FloatArray, eta_v: FloatArray, barred: ByteArray
) -> None:
    """Replace the infinite local scores of a bucket's factors, for closed forms."""
    offsets, additional_offsets = factors.offsets, factors.additional_offsets
    for f in rows:
        lo, hi = offsets[f], offsets[f + 1]
        first, last = additional_offsets[f], additional_offsets[f + 1]
        decide(a[lo:hi], eta_v[first:last], barred[first:last], CLOSED_FORM)
