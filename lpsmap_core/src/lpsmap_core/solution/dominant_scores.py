"""Scores that dominate all others of their component, so that float64 sums lose the others.

A sum with an unavoidable mask has no precision left for the other scores. For the best assignment,
only the order of sums matters. Hence a score that is far above the sum of all smaller scores is
scaled down, together with all larger ones, to a multiple that still outweighs that sum. The order
of all sums over assignments is preserved, as long as the dominant scores differ by more than the
rounding of the scaled sums.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf

DOMINANT = 1e12
"""A score is dominant if it exceeds this multiple of the sum of all smaller scores."""

REDUCED = 1e3
"""Multiple of that sum to which it is reduced. It exceeds 1 for the fractions of relaxations."""

MAX_MAGNITUDE = 1e100
"""Largest magnitude, so that sums are finite. That of reduced scores is at least 1, the unit of
gaps and tolerances."""


def reduce_dominant_scores(
    part: Part, eta: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return scores with the same best assignments but without dominant ones.

    Parameters
    ----------
    part
        The part.
    eta, eta_v
        Scores of its variables and of its additionals. Infinite and NaN scores are not changed.

    Returns
    -------
    eta, eta_v
        The reduced scores.
    changed
        For each component, whether scores were changed.
    """
    changed = np.zeros(part.n_components, dtype=bool)
    extents = _extent(eta), _extent(eta_v)
    least, most = min(low for low, _ in extents), max(high for _, high in extents)
    if most <= MAX_MAGNITUDE and most / DOMINANT <= least:
        return eta, eta_v, changed
    scores = np.concatenate([eta, eta_v])
    owner = part.component_of_numbers
    magnitude = np.where(np.isfinite(scores), np.abs(scores), 0.0)
    order = np.lexsort((magnitude, owner))
    begin = np.searchsorted(owner[order], np.arange(part.n_components + 1))
    ascending, near = np.empty_like(magnitude), np.empty_like(magnitude)
    _reduce(magnitude[order], begin, ascending)
    near[order] = ascending
    other = near != magnitude
    changed[owner[other]] = True
    scores[other] = np.copysign(near, scores)[other]
    return scores[: len(eta)], scores[len(eta) :], changed


@leaf
def _extent(scores: FloatArray) -> tuple[float, float]:
    """Return the smallest and the largest finite magnitude of scores that are not 0."""
    least, most = np.inf, 0.0
    for score in scores:
        magnitude = abs(score)
        if 0.0 < magnitude < np.inf:
            least, most = min(least, magnitude), max(most, magnitude)
    return least, most


@leaf
def _reduce(magnitude: FloatArray, begin: IntArray, near: FloatArray) -> None:
    """Write the reduced magnitudes, given magnitudes that ascend within each component."""
    for c in range(len(begin) - 1):
        # the first dominant score of those that share a scale, 0 for none, and its new magnitude
        first, new = 0.0, 0.0
        below, below_near = 0.0, 0.0
        for i in range(begin[c], begin[c + 1]):
            if below > 0.0 and DOMINANT * below < magnitude[i]:
                first, new = magnitude[i], REDUCED * below_near
            # the division comes first, since the quotient of the two others may underflow
            near[i] = magnitude[i] if first == 0.0 else magnitude[i] / first * new
            below, below_near = below + magnitude[i], below_near + near[i]
        largest = near[begin[c + 1] - 1] if begin[c] < begin[c + 1] else 0.0
        allowed = min(max(largest, 1.0 if first > 0.0 else 0.0), MAX_MAGNITUDE)
        if allowed != largest:
            for i in range(begin[c], begin[c + 1]):
                near[i] = near[i] / largest * allowed
