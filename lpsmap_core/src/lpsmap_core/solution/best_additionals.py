"""The best additionals of the factors' own oracles, given assignments of all variables."""

from __future__ import annotations

import math

import numpy as np

from lpsmap_core.layout.layout import Part
from lpsmap_core.local.oracles import best_feasible, which_are_feasible
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["best_additionals"]


def best_additionals(
    part: Part, eta_v: FloatArray, chosen: BoolArray
) -> tuple[BoolArray, FloatArray]:
    """Return which factors allow assignments, and their best additionals.

    One call of a type's oracle serves all assignments.

    Parameters
    ----------
    part
        The part.
    eta_v
        Scores of the additionals of all buckets; ``-inf`` forbids.
    chosen
        (..., n_variables) whether each variable of the part is on, in one assignment or several.

    Returns
    -------
    allowed
        (..., n_factors) for the factors of all buckets.
    v
        (..., n_additionals)
    """
    several = chosen.shape[:-1]
    n = math.prod(several)
    allowed, best = [np.empty((*several, 0), dtype=bool)], [np.empty((*several, 0))]
    for b, bucket in enumerate(part.buckets):
        copies = bucket if n == 1 else bucket.select(np.tile(np.arange(bucket.n_factors), n))
        scores_v = np.tile(eta_v[part.additionals_of(b)], n)
        on = chosen[..., bucket.variable] != bucket.negated
        scores, barred = np.where(on, np.inf, -np.inf).reshape(-1), np.isneginf(scores_v)
        w, v = best_feasible(copies, scores, scores_v, barred)
        feasible = which_are_feasible(copies, scores, barred, w, v)
        allowed.append(feasible.reshape(*several, bucket.n_factors))
        best.append(v.reshape(*several, bucket.n_additionals))
    return np.concatenate(allowed, axis=-1), np.concatenate(best, axis=-1)
