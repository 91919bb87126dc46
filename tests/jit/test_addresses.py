"""Addresses hold no references: where one could outlive its array, nothing is compiled."""

from __future__ import annotations

import types
from typing import NamedTuple

import numpy as np
import pytest

from lpsmap_core import kernel, leaf
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.by_address import by_address, record_at
from lpsmap_jit.memory import Field, hold, kinds_of

pytestmark = pytest.mark.compiled


class Pair(NamedTuple):
    numbers: FloatArray
    twice: FloatArray


pair_at = record_at(Pair)


@leaf
def double(pair):
    pair = by_address(pair)
    for i in range(len(pair.numbers)):
        pair.twice[i] = 2.0 * pair.numbers[i]
    return pair.twice.sum()


@kernel
def held_by_its_caller(n):
    return double(Pair(np.ones(n), np.empty(n)))


@kernel
def freed_too_early(n):
    pair = Pair(np.ones(n), np.empty(n))
    pair = by_address(pair)
    total = 0.0
    for i in range(n):  # the arrays' names are not used here, so that both are free
        pair.twice[i] = 2.0 * pair.numbers[i]
        total += pair.twice[i]
    return total


@kernel
def of_an_argument(pair):
    pair = by_address(pair)
    return pair.numbers[0]


@kernel
def of_a_record(handle):
    pair = pair_at(handle)
    return pair.numbers[0] + pair.numbers.sum()


@kernel
def as_a_number(n):
    numbers = np.ones(n)
    return numbers.ctypes.data


@kernel
def in_a_kernel_that_it_calls(n):
    return freed_too_early(n) + 1.0


def test_a_leaf_takes_addresses_of_what_its_caller_holds() -> None:
    assert held_by_its_caller(1000) == 2000.0


def test_all_kernels_read_what_a_handle_holds() -> None:
    assert of_a_record(hold(Pair(np.ones(1000), np.ones(1))).handle) == 1001.0


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        (freed_too_early, 3),
        (of_an_argument, Pair(np.ones(3), np.ones(3))),
        (as_a_number, 3),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_kernels_that_may_free_an_array_take_no_address(function, argument) -> None:
    for _ in range(2):  # nor is what was refused kept
        with pytest.raises(TypeError, match=rf"kernel {function.__name__} takes an address"):
            function(argument)
    assert not function.overloads


def test_nor_do_kernels_that_they_call() -> None:
    with pytest.raises(Exception, match="kernel freed_too_early takes an address"):
        in_a_kernel_that_it_calls(3)


@leaf
def address_of_its_own(pair):
    return by_address(pair)


@leaf
def address_in_a_tuple(pair):
    return len(pair.numbers), by_address(pair)


@kernel
def used_later(n):
    return address_of_its_own(Pair(np.ones(n), np.ones(n))).numbers[0]


@pytest.mark.parametrize("function", [address_of_its_own, address_in_a_tuple])
def test_addresses_are_not_returned(function) -> None:
    with pytest.raises(TypeError, match=f"{function.__name__} returns an address"):
        function(Pair(np.ones(3), np.ones(3)))
    assert not function.overloads


def test_nor_to_kernels() -> None:
    with pytest.raises(Exception, match="address_of_its_own returns an address"):
        used_later(3)


@leaf
def rest(numbers):
    return numbers[1:]


@leaf
def both(pair):
    return pair.numbers, pair.twice


@kernel
def view_by_a_leaf(n):
    tail = rest(np.ones(n))
    return tail[0]


@kernel
def tuple_by_a_leaf(n):
    first, second = both(Pair(np.ones(n), np.ones(n)))
    return first[0] + second[0]


@pytest.mark.parametrize("function", [view_by_a_leaf, tuple_by_a_leaf])
def test_kernels_take_no_arrays_from_leaves(function) -> None:
    """Leaves count no references, so that a kernel would count one too few."""
    with pytest.raises(Exception, match=r"allocates an array|returns an array without a reference"):
        function(3)


class Alias:
    """An alias of an array type with a name of its own, as `NDArray` is since NumPy 2.5."""

    __class_getitem__ = classmethod(types.GenericAlias)


class Aliased(NamedTuple):
    values: Alias[np.float64]  # type: ignore[type-arg]


def test_array_types_may_be_aliases_with_a_name() -> None:
    assert kinds_of(Aliased) == {"values": Field(np.dtype(np.float64), 1)}
