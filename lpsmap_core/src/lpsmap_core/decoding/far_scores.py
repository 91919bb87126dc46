"""Scores so far above all others of their component that float64 cannot add the two.

A mask that nothing can do without decides first, and what is left of a sum with it is no digit of
the rest. For the best assignment only the order of sums counts. So where a score is far above the
sum of all smaller ones, it and those above are scaled down to what still outweighs that sum: the
order of all sums of zeros and ones stays what it is, as long as far scores differ by no less than
the digits that they have in common with the rest.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.decoding.decode import is_closed
from lpsmap_core.engine.state import sums
from lpsmap_core.kernels.arrays import BoolArray, FloatArray
from lpsmap_core.layout.layout import Part

__all__ = ["as_given", "bring_near"]

FAR = 1e12
"""A score is far that is so many times the sum of all smaller ones."""

NEAR = 1e3
"""It becomes so many times that sum, for relaxations, whose marginals are fractions."""

MOST = 1e100
"""The largest magnitude of all, so that sums stay finite; that of scores that were far is at least
1, in units of which gaps and tolerances are."""


ROUNDING = 1e-12
"""Of a gap that is carried from one scale to another."""


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
    if most <= MOST and most / FAR <= least:
        return eta, eta_v, changed
    order = np.lexsort((magnitude, owner))
    begin = np.searchsorted(owner[order], np.arange(part.n_components + 1))
    for c in range(part.n_components):
        places = order[begin[c] : begin[c + 1]]
        near = _near(magnitude[places])
        if (near != magnitude[places]).any():
            changed[c] = True
            scores[places] = np.where(
                np.isfinite(scores[places]), np.copysign(near, scores[places]), scores[places]
            )
    return scores[: len(eta)], scores[len(eta) :], changed


def _near(magnitude: FloatArray) -> FloatArray:
    """Return what magnitudes in ascending order become."""
    with np.errstate(over="ignore"):
        smaller = np.append(0.0, np.cumsum(magnitude)[:-1])
        far = np.flatnonzero((smaller > 0.0) & (magnitude > FAR * smaller))
    near = magnitude.copy()
    for first, last in zip(far, np.append(far, len(near))[1:], strict=True):
        near[first:last] /= magnitude[first]  # first: their quotient may be less than any number
        near[first:last] *= NEAR * near[:first].sum()
    largest = near.max(initial=0.0)
    allowed = float(np.clip(largest, 1.0 if far.size else 0.0, MOST))
    return near if allowed == largest else near / largest * allowed


def as_given(
    part: Part,
    given: tuple[FloatArray, FloatArray],
    far: BoolArray,
    chosen: BoolArray,
    v: FloatArray,
    score: FloatArray,
    bound: FloatArray,
    gap: float,
) -> tuple[FloatArray, FloatArray]:
    """Return scores and bounds of assignments in units of the scores as they were given.

    A bound that proves nothing says nothing of them.

    Parameters
    ----------
    part, given
        The part, and the scores of its variables and additionals before `bring_near`.
    far
        Which components had far ones.
    chosen, v
        An assignment of the part's variables, and of its additionals.
    score, bound
        For each component, what it scores, ``-inf`` if it is not allowed, and no other more than.
    gap
        Relative difference of the two that is a proof.
    """
    if not far.any():
        return score, bound
    largest, small = np.finfo(np.float64).max, 2.0**-40
    with np.errstate(over="ignore", invalid="ignore"):
        found = _sums(part, *given, chosen, v)
        # sums that overflow, perhaps on their way
        scaled = np.clip(
            _sums(part, small * given[0], small * given[1], chosen, v) / small, -largest, largest
        )
        found = np.where(np.isfinite(found), found, scaled)
        # as far above it, in proportion, as before
        share = np.clip(
            (bound - score) / np.maximum(1.0, np.abs(score)), 0.0, (1.0 - ROUNDING) * gap
        )
        highest = found + share * np.maximum(1.0, np.abs(found))
    proved = is_closed(score, bound, gap)
    bound = np.where(far & (bound > -np.inf), np.where(proved, highest, np.inf), bound)
    return np.where(far & (score > -np.inf), found, score), bound


def _sums(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray, v: FloatArray
) -> FloatArray:
    """Return what an assignment scores in every component."""
    additionals = np.where(v != 0.0, eta_v, 0.0) * v
    of_variables = sums(part.component, np.where(chosen, eta, 0.0), part.n_components)
    return of_variables + sums(part.additional_component, additionals, part.n_components)
