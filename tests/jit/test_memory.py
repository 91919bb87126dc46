"""Records that are made in one block, and that kernels read by one address."""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap_jit.arrays import BoolArray, FloatArray, FloatTable, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.compile import leaf
from lpsmap_jit.memory import Blueprint, Memory, hold


class Shared(NamedTuple):
    numbers: FloatArray
    flags: BoolArray


class Lent(NamedTuple):
    table: FloatTable
    places: IntArray


class Own(NamedTuple):
    sums: FloatArray
    more: FloatArray
    seen: BoolArray
    order: npt.NDArray[np.uint64]
    square: FloatTable


class Whole(NamedTuple):
    shared: Shared
    own: Own
    given: Lent
    factor: float
    count: int


whole_at = record_at(Whole)


@leaf
def fill(handle):
    whole = whole_at(handle)
    shared, own, given = whole.shared, whole.own, whole.given
    for i in range(len(own.sums)):
        own.sums[i] = whole.factor * shared.numbers[i]
        own.more[i] += given.table[i, -1]
        own.seen[i] = shared.flags[i]
        own.order[i] = given.places[i] + whole.count
        own.square[i, i] = own.square.shape[1]


def shared_of(n: int) -> Memory[Shared]:
    return hold(Shared(np.arange(n, dtype=float), np.arange(n) % 2 == 0))


def blueprint(n: int) -> Blueprint[Whole]:
    return Blueprint(Whole, [None, [(n,), (n,), (n,), (n,), (n, n)], None, 0.5, 3])


@pytest.mark.parametrize("n", [0, 1, 3, 8, 13])
def test_kernels_and_python_see_the_same_arrays(n: int) -> None:
    plan, memory_of_shared, made = blueprint(n), shared_of(n), []
    shared = memory_of_shared.record
    for k in range(3):
        given = hold(Lent(np.full((n, 2), float(k)), np.arange(n)[::-1].copy()))
        made.append(plan.make(memory_of_shared, given))
    for _ in range(2):
        for memory in made:
            fill(memory.handle)
    for k, memory in enumerate(made):
        record = memory.record
        assert record.shared.numbers is shared.numbers
        np.testing.assert_array_equal(record.own.sums, 0.5 * shared.numbers)
        np.testing.assert_array_equal(record.own.more, np.full(n, 2.0 * k))
        np.testing.assert_array_equal(record.own.seen, shared.flags)
        np.testing.assert_array_equal(record.own.order, np.arange(n)[::-1] + 3)
        np.testing.assert_array_equal(record.own.square, n * np.eye(n))
        assert record.own.order.dtype == np.uint64
        assert memory.record is record


def test_arrays_outlive_the_memory_that_they_were_made_in() -> None:
    plan, shared = blueprint(5), shared_of(5)
    sums = plan.make(shared, hold(Lent(np.zeros((5, 2)), np.arange(5)))).record.own.sums
    again = [plan.make(shared, hold(Lent(np.ones((5, 2)), np.arange(5)))) for _ in range(20)]
    for memory in again:
        fill(memory.handle)
    assert not sums.any()


@pytest.mark.parametrize("n", [1, 3, 8, 13])
def test_arrays_hold_zeros_and_do_not_overlap(n: int) -> None:
    plan, shared = blueprint(n), shared_of(n)
    given = hold(Lent(np.ones((n, 2)), np.arange(n)))
    for _ in range(3):
        own = plan.make(shared, given).record.own
        assert not any(array.any() for array in own)
        for array in own:
            array[...] = array + 1
        assert all((array == 1).all() for array in own)
        del own, array


@pytest.mark.parametrize(
    "numbers", [np.zeros((2, 2)), np.zeros(4, dtype=np.float32), np.zeros(8)[::2]]
)
def test_another_array_than_the_record_says_is_refused(numbers: np.ndarray) -> None:
    with pytest.raises(TypeError, match=r"Shared\.numbers"):
        hold(Shared(numbers, np.zeros(4, dtype=bool)))


def test_addresses_are_not_copied() -> None:
    memory = hold(Lent(np.zeros((2, 2)), np.arange(2)))
    with pytest.raises(TypeError, match="holds addresses"):
        copy.deepcopy(memory)
    with pytest.raises(TypeError, match="holds addresses"):
        pickle.dumps(memory)
