"""Rows of different lengths, one after the other."""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.arrays import IntArray

__all__ = ["offsets_of", "ranges"]


def offsets_of(counts: IntArray) -> IntArray:
    """Return where rows of so many entries begin, and where the last one ends."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def ranges(offsets: IntArray, rows: IntArray) -> IntArray:
    """Return the positions of some ragged rows' entries, in the order of the rows."""
    starts, counts = offsets[rows], np.diff(offsets)[rows]
    target = offsets_of(counts)
    return np.repeat(starts - target[:-1], counts) + np.arange(target[-1])
