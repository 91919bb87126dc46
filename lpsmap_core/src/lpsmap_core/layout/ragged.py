"""Rows of different lengths in one flat array, and sums over the entries of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray


def concatenate_rows(arrays: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Concatenate rows; without rows, return an empty array of the type."""
    if len(arrays) != 1:
        return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
    (rows,) = arrays
    # numba has another type for arrays that are not writable, such as those of variables
    whole = rows.base
    if isinstance(whole, np.ndarray) and rows.flags.c_contiguous and whole.flags.carray:
        same = (whole.size, whole.dtype) == (rows.size, rows.dtype)
        rows = whole.reshape(rows.shape) if same else rows
    return np.require(rows, requirements=["C", "W"])


def offsets_of(counts: IntArray) -> IntArray:
    """Return the offsets of rows with `counts` entries each, including the end of the last row."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def ranges(offsets: IntArray, rows: IntArray) -> IntArray:
    """Return the positions of all entries of `rows`, row by row; rows begin at `offsets`."""
    starts, counts = offsets[rows], np.diff(offsets)[rows]
    target = offsets_of(counts)
    return np.repeat(starts - target[:-1], counts) + np.arange(target[-1])


def sums(owner: IntArray, values: FloatArray, n: int) -> FloatArray:
    """Return the sums of values by owner, for owners 0 to n - 1."""
    return np.bincount(owner, values, n).astype(np.float64, copy=False)  # of integers if empty


def flags(numbers: IntArray, n: int) -> BoolArray:
    """Return for each number below `n` whether it is among some `numbers`."""
    among = np.zeros(n, dtype=np.bool_)
    among[numbers] = True
    return among
