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
from lpsmap_core.layout.ragged import ranges
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
    near = np.empty_like(magnitude)
    near[order] = _reduce(magnitude[order], begin)
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


def _reduce(magnitude: FloatArray, begin: IntArray) -> FloatArray:
    """Return the reduced magnitudes, given magnitudes that ascend within each component.

    All components are processed at once, since every component of a batch can have masks.
    """
    component = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    # all scores between two edges have the same scale
    edges = np.union1d(begin, _find_dominant(magnitude, begin[component]))
    first = edges[:-1]
    of = component[first]
    rank, near = np.arange(len(of)) - np.searchsorted(of, of), magnitude.copy()
    for r in range(1, int(rank.max()) + 1):
        groups = np.flatnonzero(rank == r)
        places, n = ranges(edges, groups), np.diff(edges)[groups]
        below = _range_sums(near, begin[of[groups]], first[groups])
        # the division comes first, since the quotient of the two factors may underflow
        near[places] /= np.repeat(magnitude[first[groups]], n)
        near[places] *= np.repeat(REDUCED * below, n)
    largest = near[edges[1:] - 1][np.searchsorted(of, component, side="right") - 1]
    least = np.where(np.isin(component, of[rank > 0]), 1.0, 0.0)
    allowed = np.clip(largest, least, MAX_MAGNITUDE)
    other = allowed != largest
    near[other] = near[other] / largest[other] * allowed[other]
    return near


def _find_dominant(magnitude: FloatArray, begin: IntArray) -> IntArray:
    """Return where ascending magnitudes dominate the sum of those from `begin` up to them."""
    before = np.append(0.0, magnitude[:-1])
    with np.errstate(over="ignore"):
        above = (before > 0.0) & (magnitude > DOMINANT * before)
        places = np.flatnonzero(above & (begin < np.arange(len(magnitude))))
        below = _range_sums(magnitude, begin[places], places)
        return places[magnitude[places] > DOMINANT * below]


def _range_sums(numbers: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """Return the sums of ``numbers[first:last]`` for each pair."""
    if not len(first):
        return np.empty(0)
    pairs = np.stack([first, last], axis=1).reshape(-1)
    with np.errstate(over="ignore"):  # sums between two pairs may overflow
        return np.add.reduceat(numbers, pairs)[::2]
