"""The best structures of many factors at once, dense."""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.arrays import BoolArray, FloatArray
from lpsmap_core.kernels.interrupts import raise_interrupt
from lpsmap_core.kernels.records import Scores
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.active.answers import PythonOracles, room_for_structures
from lpsmap_core.local.forced import ORACLE, limit

__all__ = ["HELD", "best_structures", "with_finite_scores"]

HELD = 1e-9
"""Share of a structure above which it holds an entry."""


def best_structures(
    bucket: Bucket, scores: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return every factor's best structure, dense: its variables and its additionals.

    Parameters
    ----------
    bucket
        The factors.
    scores, eta_v
        Scores of their slots and of their additionals, which `limit` makes finite.
    """
    scores, eta_v = scores.copy(), eta_v.copy()
    limit(scores)
    limit(eta_v)
    found = room_for_structures(np.maximum(bucket.type.vertex_sizes(bucket.factors), 1))
    rows, oracle = np.arange(bucket.n_factors), bucket.type.map_kernel
    if oracle is None:
        PythonOracles(bucket, found).ask(rows, scores, eta_v)
    else:
        oracle(rows, bucket.factors, Scores(scores, eta_v), found)
    raise_interrupt()
    factor = np.repeat(rows, found.size)
    first = np.cumsum(found.size) - found.size
    at = np.repeat(found.start - first, found.size) + np.arange(found.size.sum())
    entries, values = found.entry[at].astype(np.int64), found.value[at]
    arity = np.diff(bucket.offsets)[factor]
    of_variables = entries < arity
    w, n = np.zeros(bucket.n_links), np.zeros(bucket.n_additionals)
    w[bucket.offsets[factor[of_variables]] + entries[of_variables]] = values[of_variables]
    rest = ~of_variables
    n[bucket.additional_offsets[factor[rest]] + entries[rest] - arity[rest]] = values[rest]
    return w, n


def with_finite_scores(
    bucket: Bucket,
    scores: FloatArray,
    eta_v: FloatArray,
    barred: BoolArray,
    multiple: float = ORACLE,
) -> tuple[FloatArray, FloatArray]:
    """Return scores of which the infinite ones, and those of barred additionals, just decide.

    Each is a `multiple` of what it takes to outweigh all else in its factor: the rest would be
    rounding.
    """
    forced = np.isinf(scores)
    n, arity = bucket.n_factors, np.diff(bucket.offsets)
    n_additionals = np.diff(bucket.additional_offsets)
    factor, factor_v = np.repeat(np.arange(n), arity), np.repeat(np.arange(n), n_additionals)
    total = 1.0 + np.bincount(factor, np.where(forced, 0.0, np.abs(scores)), n)
    total += np.bincount(factor_v, np.where(barred, 0.0, np.abs(eta_v)), n)
    decisive = multiple * total
    return (
        np.where(forced, np.copysign(decisive[factor], scores), scores),
        np.where(barred, -decisive[factor_v], eta_v),
    )
