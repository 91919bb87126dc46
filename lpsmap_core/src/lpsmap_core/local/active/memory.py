"""Where active sets live: every factor has a block of memory, which grows when its set is full.

A block is a row of 64-bit words. Its address is all that compiled loops know of it, so that a
factor's block can move while other threads work on other factors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.compile import kernel, leaf

__all__ = ["ActiveSet", "block_size", "carve_set", "enlarge_set"]


class ActiveSet(NamedTuple):
    """The active set of one factor, with room for ``len(order)`` structures.

    A structure's ``size`` nonzeros are ``entry`` (a slot of its factor, or arity + an additional)
    and ``value``, from ``place * width`` on; the first ``of_variables`` are slots.
    ``order[:active[0]]`` are the places of the active ones; ``gram`` is by place, the lower
    triangle ``chol`` of G + 1 1^T and ``ones``, the solution of ``chol ones = 1``, by order.
    """

    width: int
    active: IntArray
    status: IntArray
    entry: npt.NDArray[np.uint32]
    value: FloatArray
    size: IntArray
    of_variables: IntArray
    order: IntArray
    p: FloatArray
    theta: FloatArray
    ones: FloatArray
    gram: FloatArray
    chol: FloatArray


def block_size(width: Any, capacity: Any) -> Any:
    """Return the words that sets of structures with at most `width` nonzeros take.

    Parameters
    ----------
    width, capacity
        Numbers or arrays.
    """
    entries = width * capacity
    return (entries + 1) // 2 + entries + 6 * capacity + 2 * capacity * capacity


@kernel
def carve_set(
    block: FloatArray, width: int, capacity: int, active: IntArray, status: IntArray
) -> ActiveSet:
    """Return the arrays of a set whose block is given; the other two hold one number each."""
    entries, square = width * capacity, capacity * capacity
    at = (entries + 1) // 2
    values = at + entries
    numbers = values + 3 * capacity
    matrices = numbers + 3 * capacity
    return ActiveSet(
        width,
        active,
        status,
        block[:at].view(np.uint32),
        block[at:values],
        block[values : values + capacity].view(np.int64),
        block[values + capacity : values + 2 * capacity].view(np.int64),
        block[values + 2 * capacity : numbers].view(np.int64),
        block[numbers : numbers + capacity],
        block[numbers + capacity : numbers + 2 * capacity],
        block[numbers + 2 * capacity : matrices],
        block[matrices : matrices + square],
        block[matrices + square : matrices + 2 * square],
    )


@kernel
def enlarge_set(
    old: FloatArray,
    new: FloatArray,
    width: int,
    capacity: int,
    new_capacity: int,
    active: IntArray,
    status: IntArray,
) -> None:
    """Copy a set from its block to one with more room."""
    # arrays are all that numba takes from Python without calling it, which signals could disturb
    before = carve_set(old, width, capacity, active, status)
    _move(before, carve_set(new, width, new_capacity, active, status))


@leaf
def _move(old: ActiveSet, new: ActiveSet) -> None:
    n, n_new = len(old.order), len(new.order)
    for k in range(n_new):
        new.order[k] = k
    for k in range(n):
        new.order[k] = old.order[k]
        new.p[k] = old.p[k]
        new.ones[k] = old.ones[k]
    for k in range(old.active[0]):
        place = old.order[k]
        new.theta[place] = old.theta[place]
        new.size[place] = old.size[place]
        new.of_variables[place] = old.of_variables[place]
        for e in range(place * old.width, place * old.width + old.size[place]):
            new.entry[e] = old.entry[e]
            new.value[e] = old.value[e]
        for other in range(n):
            new.gram[place * n_new + other] = old.gram[place * n + other]
        for j in range(k + 1):
            new.chol[k * n_new + j] = old.chol[k * n + j]
