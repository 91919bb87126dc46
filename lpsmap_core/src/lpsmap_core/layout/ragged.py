"""Rows of different lengths, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_jit.arrays import IntArray

__all__ = ["concatenated", "offsets_of", "ranges"]


def concatenated(arrays: list[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return rows behind each other; of no rows an empty array of the type."""
    if len(arrays) == 1:
        # writable, as the others are: to numba arrays that are not are of another type
        return np.require(arrays[0], requirements=["C", "W"])
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)


def offsets_of(counts: IntArray) -> IntArray:
    """Return where rows begin that have `counts` entries each, and where the last one ends."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def ranges(offsets: IntArray, rows: IntArray) -> IntArray:
    """Return the positions of the entries of some `rows`, which begin at `offsets`, row by row."""
    starts, counts = offsets[rows], np.diff(offsets)[rows]
    target = offsets_of(counts)
    return np.repeat(starts - target[:-1], counts) + np.arange(target[-1])
