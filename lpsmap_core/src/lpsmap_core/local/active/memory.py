"""Where active sets live: every factor has a block of memory, which grows when its set is full.

A block is a row of 64-bit words. Its address is all that compiled loops know of it, so that a
factor's block can move while other threads work on other factors. The triangle of the Gram matrix
comes last: a block may end before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.compile import kernel, leaf

__all__ = [
    "MOST_NEWCOMERS",
    "ActiveSet",
    "block_size",
    "carve_set",
    "has_triangle",
    "is_full",
    "move_set",
    "newcomers",
    "room",
]

MOST_NEWCOMERS = 7
"""Structures that join a set at once, at most. With the residual these are the eight columns that
one pass over the triangle serves."""

STRUCTURES_PER_NEWCOMER = 32
"""A set takes in one structure at once for so many that it has: small ones are cheap to bring to
their optimum, from which each newcomer is worth more. For large ones 8 and 16 are as good."""


class ActiveSet(NamedTuple):
    """The active set of one factor, with room for ``len(order)`` structures.

    A structure's ``size`` nonzeros are ``entry`` (a slot of its factor, or arity + an additional)
    and ``value``, from ``place * width`` on; the first ``of_variables`` are slots.
    ``order[:active[0]]`` are the places of the active ones, and the ``waiting[0]`` after them those
    of structures that are about to join. By order are ``p``, the packed rows of ``chol``, the lower
    triangle of G + 1 1^T, and ``ones``, the solution of ``chol ones = 1``. A set without a triangle
    has a ``chol`` that begins with zero, or is empty.
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
def newcomers(count: int) -> int:
    """Return how many structures join a set of some at once."""
    return min(MOST_NEWCOMERS, max(1, count // STRUCTURES_PER_NEWCOMER))


@leaf
def is_full(own: ActiveSet) -> bool:
    """Return whether a set has no room for those that join next, and one more."""
    needed = own.active[0] + newcomers(own.active[0]) + 1
    return needed > len(own.order)  # type: ignore[no-any-return]


@leaf
def has_triangle(own: ActiveSet) -> bool:
    """Return whether the triangle of a set that is not empty is at hand."""
    return len(own.chol) > 0 and own.chol[0] > 0.0


def room(count: int) -> int:
    """Return the capacity that a set of some structures needs."""
    return count + 1 + min(MOST_NEWCOMERS, max(1, count // STRUCTURES_PER_NEWCOMER))


def block_size(width: Any, capacity: Any, triangle: bool = True) -> Any:
    """Return the words that sets of structures with at most `width` nonzeros take.

    Parameters
    ----------
    width, capacity
        Numbers or arrays.
    triangle
        Whether there is a triangle.
    """
    entries = width * capacity
    return (entries + 1) // 2 + entries + 6 * capacity + triangle * (capacity * (capacity + 1) // 2)


@kernel
def carve_set(
    block: FloatArray,
    width: int,
    capacity: int,
    active: IntArray,
    waiting: IntArray,
    status: IntArray,
) -> ActiveSet:
    """Return the arrays of a set whose block is given; the other three hold one number each."""
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


@kernel
def move_set(
    old: FloatArray,
    new: FloatArray,
    width: int,
    capacity: int,
    new_capacity: int,
    active: IntArray,
    waiting: IntArray,
    status: IntArray,
) -> None:
    """Copy a set from its block to one of another size."""
    # arrays are all that numba takes from Python without calling it, which signals could disturb
    before = carve_set(old, width, capacity, active, waiting, status)
    _move(before, carve_set(new, width, new_capacity, active, waiting, status))


@leaf
def _move(old: ActiveSet, new: ActiveSet) -> None:
    """Copy the active structures, and those that wait, in their order."""
    count, width = old.active[0], old.width
    for place in range(len(new.order)):
        new.order[place] = place
    for k in range(count + old.waiting[0]):
        place = old.order[k]
        new.p[k], new.ones[k], new.theta[k] = old.p[k], old.ones[k], old.theta[place]
        new.size[k], new.of_variables[k] = old.size[place], old.of_variables[place]
        for e in range(old.size[place]):
            new.entry[k * width + e] = old.entry[place * width + e]
            new.value[k * width + e] = old.value[place * width + e]
    if len(new.chol) == 0:
        return
    kept = min(len(old.chol), count * (count + 1) // 2)
    new.chol[0] = 0.0
    for at in range(kept):
        new.chol[at] = old.chol[at]
