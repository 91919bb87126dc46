"""What assignments of all variables score, by the factors' own oracles."""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.state import sums
from lpsmap_core.kernels.arrays import BoolArray, FloatArray, IntArray
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.oracles import HELD, best_structures, with_finite_scores

__all__ = ["assignment_scores", "best_additionals", "scored"]


def best_additionals(
    part: Part, eta_v: FloatArray, chosen: BoolArray
) -> tuple[BoolArray, FloatArray]:
    """Return which factors allow an assignment, and their best additionals with it.

    Parameters
    ----------
    part
        The part.
    eta_v
        Scores of the additionals of all buckets; ``-inf`` forbids.
    chosen
        For each variable of the part, whether it is on.

    Returns
    -------
    allowed
        For each factor of all buckets.
    v
        For each additional.
    """
    allowed, found = [np.empty(0, dtype=bool)], [np.empty(0)]
    for b, bucket in enumerate(part.buckets):
        own, barred = eta_v[part.additionals_of(b)], np.isneginf(eta_v[part.additionals_of(b)])
        on = chosen[bucket.variable] != bucket.negated
        scores = np.where(on, np.inf, -np.inf)
        finite = with_finite_scores(bucket, scores, np.where(barred, 0.0, own), barred)
        w, n = best_structures(bucket, *finite)
        wrong = sums(_owners(bucket.offsets), np.abs(w - on), bucket.n_factors)
        wrong += sums(
            _owners(bucket.additional_offsets), np.where(barred, np.abs(n), 0.0), bucket.n_factors
        )
        allowed.append(wrong <= HELD)
        found.append(n)
    return np.concatenate(allowed), np.concatenate(found)


def assignment_scores(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray
) -> FloatArray:
    """Return what every component's assignment scores, ``-inf`` where a factor does not allow it.

    Parameters
    ----------
    part, eta_v
        As for `best_additionals`.
    eta
        Scores that broadcast to the shape of `chosen`.
    chosen
        For each variable of the part, in any shape, whether it is on.
    """
    return scored(part, eta, eta_v, chosen)[0]


def scored(
    part: Part, eta: FloatArray, eta_v: FloatArray, chosen: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return what `assignment_scores` returns, and the additionals that this takes."""
    allowed, v = best_additionals(part, eta_v, chosen.reshape(-1))
    gains = np.where(chosen, eta, 0.0).reshape(-1)
    scores = sums(part.component, gains, part.n_components)
    gains_v = np.where(v != 0.0, eta_v, 0.0) * v
    scores += sums(part.additional_component, gains_v, part.n_components)
    scores[part.blocks.component[~allowed]] = -np.inf
    return scores, v


def _owners(offsets: IntArray) -> IntArray:
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
