"""Access of kernels to the active sets of one bucket, and their calls of compiled oracles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.kernels.entries import reader_of
from lpsmap_core.kernels.records import Factors, Scores, Structures
from lpsmap_core.local.active.memory import ActiveSet, copy_set, view_set
from lpsmap_core.local.active.oracle_results import clear_sizes, first_invalid_structure
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import by_value
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.interrupts import interrupted
from lpsmap_jit.native import floats, invoke

CALL_LINKS = 100_000
"""Maximum number of links of the factors in one call of an oracle, if no factor has more."""


class SetsRecord(NamedTuple):
    """The record of the active sets of a bucket for kernels."""

    map_kernel: IntArray
    """Address of the oracle; 0 until it is compiled."""
    factors: Factors
    inverse_delta: FloatArray
    scores: FloatArray
    """Inputs of the oracle."""
    candidates: Structures
    """Outputs of the oracle: the best structures of the factors."""
    width: IntArray
    capacity: IntArray
    address: IntArray
    """Address of each set's block, which moves when the set grows."""
    length: IntArray
    """Length of each set's block."""
    active: IntArray
    waiting: IntArray
    iterations_left: IntArray
    """Iterations that are left to each factor in the current solve."""
    status: IntArray
    forbids: int
    """Whether any slot may be forced, or any additional forbidden."""
    forbidden: ByteArray


sets_at = reader_of(SetsRecord, precedes=True)
"""Returns, in kernels, the record of the sets from their first argument."""


class LocalProblem(NamedTuple):
    """The layout of a bucket and its current scores, for kernels."""

    offsets: IntArray
    additional_offsets: IntArray
    link_parameter: FloatArray
    inverse_delta: FloatArray
    a: FloatArray
    """Local scores, infinite in forced slots. All structures of a feasible face agree on these
    slots, so they are left out of sums that are only compared."""
    eta_v: FloatArray
    forbids: bool
    """Whether any slot may be forced, or any additional forbidden."""
    forbidden: ByteArray


@kernel
def set_of(sets: Any, f: int) -> ActiveSet:
    """Return the active set of a factor."""
    record, last = sets_at(sets), f + 1
    return view_set(
        floats(record.address[f], record.length[f]),
        record.width[f],
        record.capacity[f],
        record.active[f:last],
        record.waiting[f:last],
        record.status[f:last],
    )


@kernel
def copy_sets(
    sets: Any, rows: IntArray, address: IntArray, length: IntArray, capacity: IntArray
) -> None:
    """Copy the sets of `rows` to blocks at other addresses."""
    record = sets_at(sets)
    for i in range(len(rows)):
        f = rows[i]
        last, block = f + 1, floats(address[i], length[i])
        counts = record.active[f:last], record.waiting[f:last], record.status[f:last]
        copy_set(set_of(sets, f), view_set(block, record.width[f], capacity[i], *counts))


@kernel
def status_of(sets: Any) -> IntArray:
    """Return the status of the bucket's factors."""
    return sets_at(sets).status  # type: ignore[no-any-return]


@leaf
def largest_capacity(sets: Any, rows: IntArray) -> int:
    """Return the largest capacity of some sets, in structures."""
    capacity, largest = sets_at(sets).capacity, 0
    for f in rows:
        largest = max(largest, capacity[f])
    return largest


@kernel
def problem_of(sets: Any, a: FloatArray, eta_v: FloatArray) -> LocalProblem:
    """Return the local problem for some scores."""
    record = sets_at(sets)
    factors = record.factors
    return LocalProblem(
        factors.offsets,
        factors.additional_offsets,
        factors.link_parameter,
        record.inverse_delta,
        a,
        eta_v,
        record.forbids != 0,
        record.forbidden,
    )


@kernel
def ask_oracle(sets: Any, rows: IntArray, eta_v: FloatArray) -> int:
    """Write the best structures of `rows`, by a compiled oracle.

    Returns the position of the first factor with an invalid structure; -1 without one, or on an
    interrupt.
    """
    record = sets_at(sets)
    factors, candidates, begin = by_value(record.factors), by_value(record.candidates), 0
    scores = Scores(record.scores, eta_v)
    while begin < len(rows):
        end = _end_of_call(rows, begin, factors.offsets)
        called = np.ascontiguousarray(rows[begin:end])
        clear_sizes(called, candidates)
        invoke(record.map_kernel[0], (called, factors, scores, candidates))
        if interrupted():
            return -1
        wrong = first_invalid_structure(called, factors, candidates)
        if wrong >= 0:
            return begin + wrong
        begin = end
    return -1


@leaf
def _end_of_call(rows: IntArray, begin: int, offsets: IntArray) -> int:
    """Return the end of the rows for the next call of an oracle."""
    if offsets[-1] <= CALL_LINKS:
        return len(rows)
    n_links = 0
    for i in range(begin, len(rows)):
        n_links += offsets[rows[i] + 1] - offsets[rows[i]]
        if n_links >= CALL_LINKS:
            return i + 1
    return len(rows)
