"""The memory of active sets: every factor has a block, which grows when its set is full.

A block is an array of 64-bit words. Compiled loops refer to it by address only, so the block of one
factor can move while other threads work on other factors. The triangle of the Gram matrix comes
last, after the two arrays that belong to it, and a block may omit all three.

Kernels get the sets of a bucket, and its local problem, as records.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.records import Factors, Structures
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.native import floats

MAX_NEWCOMERS = 7
"""Largest number of structures that join a set at once. With the residual these are the eight
columns of one pass over the triangle."""

STRUCTURES_PER_NEWCOMER = 32
"""Number of structures of a set per newcomer that joins at once. The optimum of a small set is
cheap, and newcomers found from it are worth more. For large sets 8 and 16 are as good."""


class ActiveSet(NamedTuple):
    """The active set of one factor, with room for ``len(order)`` structures.

    The structure at a place has ``size`` nonzeros in ``entry`` (a slot of its factor, or arity + an
    additional) and ``value``, from ``place * width`` on; the first ``of_variables`` are slots.
    ``order[:active[0]]`` holds the places of the active structures, and the next ``waiting[0]``
    entries those of structures that wait to join. Sorted by this order are the weights ``p``, the
    packed rows of ``chol``, which is the Cholesky factor of G + 1 1^T, and ``ones``, the solution
    of ``chol ones = 1``. ``theta`` has the linear terms by place, in a solve. Without a triangle,
    ``chol`` begins with zero, or all three are empty.
    """

    width: int
    active: IntArray
    waiting: IntArray
    status: IntArray
    entry: npt.NDArray[np.uint32]
    value: FloatArray
    size: IntArray
    of_variables: IntArray
    order: IntArray
    p: FloatArray
    theta: FloatArray
    ones: FloatArray
    chol: FloatArray


@leaf
def n_newcomers(count: int) -> int:
    """Return how many structures join a set of `count` structures at once."""
    return min(MAX_NEWCOMERS, max(1, count // STRUCTURES_PER_NEWCOMER))


@leaf
def needed_capacity(count: int) -> int:
    """Return the capacity of a set of `count` structures, the next newcomers and one more."""
    return count + n_newcomers(count) + 1


@leaf
def is_full(active_set: ActiveSet) -> bool:
    """Return whether a set lacks the capacity that it needs."""
    return needed_capacity(active_set.active[0]) > len(active_set.order)


@leaf
def has_triangle(active_set: ActiveSet) -> bool:
    """Return whether a set that is not empty has its triangle."""
    return len(active_set.chol) > 0 and active_set.chol[0] > 0.0


@kernel
def with_triangle(active_set: ActiveSet, memory: FloatArray) -> ActiveSet:
    """Return a set that rests, with other memory for `ones` and for its triangle."""
    return ActiveSet(
        active_set.width,
        active_set.active,
        active_set.waiting,
        active_set.status,
        active_set.entry,
        active_set.value,
        active_set.size,
        active_set.of_variables,
        active_set.order,
        active_set.p,
        active_set.theta,
        memory[: active_set.active[0]],
        memory[active_set.active[0] :],
    )


def block_size(width: Any, capacity: Any, triangle: bool = True) -> Any:
    """Return the length of blocks in words, with or without the triangle.

    The width is the largest number of nonzeros of a structure, the capacity a number of structures;
    both are numbers or arrays.
    """
    entries = width * capacity
    of_triangle = 2 * capacity + capacity * (capacity + 1) // 2
    return (entries + 1) // 2 + entries + 4 * capacity + triangle * of_triangle


@kernel
def view_set(
    block: FloatArray,
    width: int,
    capacity: int,
    active: IntArray,
    waiting: IntArray,
    status: IntArray,
) -> ActiveSet:
    """Return the arrays of a set in its block; the other three arrays hold one number each."""
    entries = width * capacity
    at = (entries + 1) // 2
    values = at + entries
    numbers = values + 3 * capacity
    triangle = numbers + 3 * capacity
    return ActiveSet(
        width,
        active,
        waiting,
        status,
        block[:at].view(np.uint32),
        block[at:values],
        block[values : values + capacity].view(np.int64),
        block[values + capacity : values + 2 * capacity].view(np.int64),
        block[values + 2 * capacity : numbers].view(np.int64),
        block[numbers : numbers + capacity],
        block[numbers + capacity : numbers + 2 * capacity],
        block[numbers + 2 * capacity : triangle],
        block[triangle:],
    )


@leaf
def copy_set(old: ActiveSet, new: ActiveSet) -> None:
    """Copy the active and the waiting structures, in their order."""
    count, width = old.active[0], old.width
    for place in range(len(new.order)):
        new.order[place] = place
    for k in range(count + old.waiting[0]):
        place = old.order[k]
        new.p[k] = old.p[k]
        new.size[k], new.of_variables[k] = old.size[place], old.of_variables[place]
        for e in range(old.size[place]):
            new.entry[k * width + e] = old.entry[place * width + e]
            new.value[k * width + e] = old.value[place * width + e]
    if len(new.chol) == 0:
        return
    new.chol[0] = 0.0
    if len(old.chol) == 0:
        return
    for k in range(count + old.waiting[0]):
        new.theta[k], new.ones[k] = old.theta[old.order[k]], old.ones[k]
    for at in range(count * (count + 1) // 2):
        new.chol[at] = old.chol[at]


# -------------------------------------------------------------------- records for kernels


class SetsRecord(NamedTuple):
    """The record of the active sets of a bucket for kernels."""

    map_kernel: IntArray
    """Address of the oracle; 0 until it is compiled."""
    factors: Factors
    inverse_delta: FloatArray
    scores: FloatArray
    """Inputs of the oracle."""
    centre: FloatArray
    """For each slot, the point of the best bound; empty without additionals, see `smoothing`."""
    bound: FloatArray
    """The best bound of each factor."""
    exchanges: IntArray
    """How often a structure joined each set in this solve and the set did not grow."""
    smooths: IntArray
    """Whether the scores of each factor are those between `z` and the centre."""
    candidates: Structures
    """Outputs of the oracle, the best structures of the factors."""
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


sets_at = record_at(SetsRecord)
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
