"""Scores so far above all others of their component that float64 cannot add the two.

A mask that nothing can do without decides first, and what is left of a sum with it is no digit of
the rest. For the best assignment only the order of sums counts. So where a score is far above the
sum of all smaller ones, it and those above are scaled down to what still outweighs that sum: the
order of all sums of zeros and ones stays what it is, as long as far scores differ by no less than
the digits that they have in common with the rest.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.layout.layout import Part
from lpsmap_core.layout.ragged import ranges
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

__all__ = ["bring_near"]

DOMINANT = 1e12
"""A score is far that is so many times the sum of all smaller ones."""

REDUCED = 1e3
"""It becomes so many times that sum, for relaxations, whose marginals are fractions."""

MAX_MAGNITUDE = 1e100
"""The largest magnitude of all, so that sums stay finite; that of scores that were far is at least
1, in units of which gaps and tolerances are."""


def bring_near(
    part: Part, eta: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return scores of the same best assignments without far ones, and which components had some.

    Parameters
    ----------
    part
        The part.
    eta, eta_v
        Scores of its variables and of its additionals. Those that are not finite stay.
    """
    scores = np.concatenate([eta, eta_v])
    owner = np.concatenate([part.component, part.additional_component])
    magnitude = np.where(np.isfinite(scores), np.abs(scores), 0.0)
    changed = np.zeros(part.n_components, dtype=bool)
    least = magnitude.min(initial=np.inf, where=magnitude > 0.0)
    most = magnitude.max(initial=0.0)
    if most <= MAX_MAGNITUDE and most / DOMINANT <= least:
        return eta, eta_v, changed
    order = np.lexsort((magnitude, owner))
    begin = np.searchsorted(owner[order], np.arange(part.n_components + 1))
    near = np.empty_like(magnitude)
    near[order] = _reduce(magnitude[order], begin)
    other = near != magnitude
    changed[owner[other]] = True
    scores[other] = np.copysign(near, scores)[other]
    return scores[: len(eta)], scores[len(eta) :], changed


def _reduce(magnitude: FloatArray, begin: IntArray) -> FloatArray:
    """Return what magnitudes become that ascend within each component.

    All components at once, since batches have masks in all of them.
    """
    component = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    edges = np.union1d(
        begin, _find_dominant(magnitude, begin[component])
    )  # of what is scaled alike
    first = edges[:-1]
    of = component[first]
    rank, near = np.arange(len(of)) - np.searchsorted(of, of), magnitude.copy()
    for r in range(1, int(rank.max()) + 1):
        groups = np.flatnonzero(rank == r)
        places, n = ranges(edges, groups), np.diff(edges)[groups]
        below = _range_sums(near, begin[of[groups]], first[groups])
        # first by the magnitude: the quotient of the two may be less than any number
        near[places] /= np.repeat(magnitude[first[groups]], n)
        near[places] *= np.repeat(REDUCED * below, n)
    largest = near[edges[1:] - 1][np.searchsorted(of, component, side="right") - 1]
    least = np.where(np.isin(component, of[rank > 0]), 1.0, 0.0)
    allowed = np.clip(largest, least, MAX_MAGNITUDE)
    other = allowed != largest
    near[other] = near[other] / largest[other] * allowed[other]
    return near


def _find_dominant(magnitude: FloatArray, begin: IntArray) -> IntArray:
    """Return where ascending magnitudes are far above the sum of those from `begin` to them."""
    before = np.append(0.0, magnitude[:-1])
    with np.errstate(over="ignore"):
        above = (before > 0.0) & (magnitude > DOMINANT * before)
        places = np.flatnonzero(above & (begin < np.arange(len(magnitude))))
        below = _range_sums(magnitude, begin[places], places)
        return places[magnitude[places] > DOMINANT * below]


def _range_sums(numbers: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """Return the sums of the numbers from each of some places to before another."""
    if not len(first):
        return np.empty(0)
    pairs = np.stack([first, last], axis=1).reshape(-1)
    with np.errstate(over="ignore"):  # of those that are between two pairs
        return np.add.reduceat(numbers, pairs)[::2]
