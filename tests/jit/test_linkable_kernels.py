"""Kernels as parts of others, and named tuples that kernels hand on by their address."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from lpsmap_core import kernel, leaf
from lpsmap_jit.by_address import by_address

pytestmark = pytest.mark.compiled


@leaf
def power(x, n):
    result = 1.0
    for _ in range(n):
        result *= x
    return result


@leaf
def checked(x):
    if x < 0.0:
        raise ValueError("negative")
    return power(x, 2)


@kernel
def total(x):
    result = 0.0
    for i in range(len(x)):
        result += checked(x[i]) + power(x[i], 3) + power(x[i], i)
    return result


def test_what_kernels_call_becomes_machine_code_in_them_alone() -> None:
    x = np.array([0.5, 2.0, 3.0])
    assert total(x) == (x**2 + x**3 + x ** np.arange(3)).sum()
    assert len(total.overloads) == 1
    assert not power.overloads
    assert power(3.0, 2) == 9.0  # and for Python once it asks


def test_numbers_that_are_written_out_make_no_kernel_of_their_own() -> None:
    total(np.ones(2))
    template, *_ = power.get_call_template([*map(_type_of, (1.0, 2))], {})
    kinds = {tuple(case.args) for case in template.cases}
    assert kinds == {tuple(map(_type_of, (1.0, 2)))}


def _type_of(value):
    import numba

    return numba.typeof(value)


def test_exceptions_of_parts_come_through() -> None:
    with pytest.raises(ValueError, match="negative"):
        total(np.array([1.0, -1.0]))


class Inner(NamedTuple):
    table: np.ndarray
    flags: np.ndarray


class Outer(NamedTuple):
    numbers: np.ndarray
    half: float
    inner: Inner
    cube: np.ndarray


@leaf
def change(outer, i):
    table = outer.inner.table
    for j in range(table.shape[1]):
        table[i, j] += outer.half * outer.numbers[i]
        outer.cube[i, j, -1] = table[i].sum()
    outer.inner.flags[i] = len(outer.cube) == len(outer.numbers)


@leaf
def change_all(outer):
    outer = by_address(outer)
    for i in range(len(outer.numbers)):
        change(outer, i)
    return outer.cube.size, outer.cube[:, :, -1].sum()


def test_tuples_by_address_are_the_same_arrays(rng: np.random.Generator) -> None:
    for n, m in ((3, 4), (0, 2), (5, 1)):
        numbers, table = rng.standard_normal(n), rng.standard_normal((n, m))
        expected = table + 0.5 * numbers[:, None]
        outer = Outer(numbers, 0.5, Inner(table, np.zeros(n, dtype=np.bool_)), np.zeros((n, m, 2)))
        size, last = change_all(outer)
        np.testing.assert_allclose(table, expected)
        assert outer.inner.flags.all()
        assert size == 2 * n * m
        np.testing.assert_allclose(last, outer.cube[:, :, -1].sum())
        np.testing.assert_allclose(outer.cube[:, -1, -1], expected.sum(axis=1))


def test_arrays_that_are_not_contiguous_do_not_go_by_address() -> None:
    import numba

    outer = Outer(np.ones(4)[::2], 0.5, Inner(np.ones((2, 2)), np.ones(2) > 0), np.ones((2, 2, 2)))
    with pytest.raises(numba.core.errors.TypingError):
        change_all(outer)


def test_every_kernel_has_a_lock_of_its_own() -> None:
    locks = {k._cache.lock_path for k in (power, checked, total)}
    assert len(locks) == 3
