"""Kernels with what the package depends on, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_jit import kernel, leaf
from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.memory import hold


class Row(NamedTuple):
    """A record of arrays."""

    entry: IntArray
    value: FloatArray


row_at = record_at(Row)


@kernel
def total(numbers: FloatArray) -> float:
    """Return the sum of an array."""
    found = 0.0
    for x in numbers:
        found += x
    return found


@leaf
def double_entries(handle: IntArray) -> None:
    """Double what a record lists."""
    row = row_at(handle)
    for i in row.entry:
        row.value[i] *= 2.0


def test_a_kernel_is_called() -> None:
    assert total(np.arange(4.0)) == 6.0


def test_a_record_is_read_at_its_address() -> None:
    record = Row(np.array([2, 0]), np.ones(4))
    double_entries(hold(record).handle)
    np.testing.assert_array_equal(record.value, [2.0, 1.0, 2.0, 1.0])
