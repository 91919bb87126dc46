"""The best structures of many factors at once, as dense arrays."""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.records import Scores, Structures
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.active.oracle_results import (
    PythonOracles,
    allocate_structures,
    call_map_kernel,
    vertex_sizes,
)
from lpsmap_core.local.finite_scores import (
    ORACLE_MULTIPLE,
    SCORE_LIMIT,
    clip_scores,
    exchange_rate,
)
from lpsmap_core.model.score_magnitude import largest_magnitude
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf
from lpsmap_jit.interrupts import raise_interrupt

HELD = 1e-9
"""Value of an entry above which a structure holds it."""


def best_structures(
    bucket: Bucket, scores: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the best structure of every factor, dense: its variables and its additionals.

    `clip_scores` makes the scores of slots and additionals finite.
    """
    return dense(bucket, sparse_structures(bucket, scores, eta_v))


def sparse_structures(bucket: Bucket, scores: FloatArray, eta_v: FloatArray) -> Structures:
    """Return the best structure of every factor; see `best_structures`."""
    scores, eta_v = _clipped(bucket, scores), _clipped(bucket, eta_v)
    structures = allocate_structures(np.maximum(vertex_sizes(bucket), 1))
    rows = np.arange(bucket.n_factors)
    if bucket.type.map_kernel is None:
        PythonOracles(bucket, structures).solve(rows, scores, eta_v)
        raise_interrupt()
    else:
        call_map_kernel(bucket, rows, Scores(scores, eta_v), structures)
    return structures


def dense(bucket: Bucket, structures: Structures) -> tuple[FloatArray, FloatArray]:
    """Return the values of slots and of additionals in a structure of every factor."""
    w, n = np.zeros(bucket.n_links), np.zeros(bucket.n_additionals)
    _write_slots(structures, bucket.offsets, w)
    write_additionals(structures, bucket.offsets, bucket.additional_offsets, n)
    return w, n


def _clipped(bucket: Bucket, scores: FloatArray) -> FloatArray:
    """Return scores for the oracles of a bucket; a copy if these might change them."""
    if bucket.type.map_kernel is not None and largest_magnitude(scores) <= SCORE_LIMIT:
        return scores
    scores = scores.copy()
    clip_scores(scores)
    return scores


def best_feasible(
    bucket: Bucket, scores: FloatArray, eta_v: FloatArray, forbidden: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return the best structure of every factor, dense, under infinite scores that decide.

    A factor without a structure that obeys them gets another one.

    Parameters
    ----------
    bucket
        The factors.
    scores
        Scores of their slots: ``inf`` forces a slot on, ``-inf`` forces it off.
    eta_v
        Scores of their additionals.
    forbidden
        Whether an additional is forced off.

    Returns
    -------
    w, n
        Values of the slots and of the additionals in the structures.
    """
    return best_structures(bucket, *with_finite_scores(bucket, scores, eta_v, forbidden))


def with_finite_scores(
    bucket: Bucket,
    scores: FloatArray,
    eta_v: FloatArray,
    forbidden: BoolArray,
    multiple: float = ORACLE_MULTIPLE,
) -> tuple[FloatArray, FloatArray]:
    """Replace infinite scores, and those of forbidden additionals, by finite ones that decide.

    Each is a `multiple` of the sum of all other magnitudes in its factor, and of the slots'
    `exchange_rate`. Larger scores would leave only rounding of the others.
    """
    if not np.isinf(scores).any() and not forbidden.any():
        return scores, eta_v
    finite, finite_v = np.empty(len(scores)), np.empty(len(eta_v))
    offsets, per_link = (bucket.offsets, bucket.additional_offsets), bucket.factors.link_parameter
    _decide(*offsets, per_link, scores, eta_v, forbidden, multiple, finite, finite_v)
    return finite, finite_v


@leaf
def _write_slots(structures: Structures, offsets: IntArray, w: FloatArray) -> None:
    """Write the values of slots into zeros."""
    for f in range(len(offsets) - 1):
        first, arity = offsets[f], offsets[f + 1] - offsets[f]
        for k in range(structures.start[f], structures.start[f] + structures.size[f]):
            if structures.entry[k] < arity:
                w[first + structures.entry[k]] = structures.value[k]


@leaf
def write_additionals(
    structures: Structures, offsets: IntArray, additional_offsets: IntArray, n: FloatArray
) -> None:
    """Write the values of additionals into zeros."""
    for f in range(len(offsets) - 1):
        first, arity = additional_offsets[f], offsets[f + 1] - offsets[f]
        for k in range(structures.start[f], structures.start[f] + structures.size[f]):
            if structures.entry[k] >= arity:
                n[first + structures.entry[k] - arity] = structures.value[k]


@leaf
def _decide(
    offsets: IntArray,
    additional_offsets: IntArray,
    link_parameter: FloatArray,
    scores: FloatArray,
    eta_v: FloatArray,
    forbidden: BoolArray,
    multiple: float,
    finite: FloatArray,
    finite_v: FloatArray,
) -> None:
    """Compute `with_finite_scores`."""
    for f in range(len(offsets) - 1):
        total = 0.0
        for i in range(offsets[f], offsets[f + 1]):
            total += 0.0 if np.isinf(scores[i]) else abs(scores[i])
        for i in range(additional_offsets[f], additional_offsets[f + 1]):
            total += 0.0 if forbidden[i] else abs(eta_v[i])
        more = min(total, 1.0) if total > 0.0 else 1.0  # keeps the digits of small scores, too
        decisive = multiple * (total + more)
        decisive *= exchange_rate(offsets[f], offsets[f + 1], link_parameter)
        for i in range(offsets[f], offsets[f + 1]):
            finite[i] = np.copysign(decisive, scores[i]) if np.isinf(scores[i]) else scores[i]
        for i in range(additional_offsets[f], additional_offsets[f + 1]):
            finite_v[i] = -decisive if forbidden[i] else eta_v[i]
