"""Rows of different lengths in one flat array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_jit.arrays import IntArray


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
