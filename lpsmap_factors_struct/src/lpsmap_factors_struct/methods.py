"""The factors of a bucket by the method that solves them."""

from __future__ import annotations

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import IntArray, LocalProblem

__all__ = ["has_forced", "rows_with"]


@kernel
def rows_with(methods: IntArray, rows: IntArray, method: int) -> IntArray:
    """Return the rows with some method, as a contiguous array, which `solve_by` takes."""
    kept, n = np.empty(len(rows), dtype=np.int64), 0
    for f in rows:
        if methods[f] == method:
            kept[n] = f
            n += 1
    return kept[:n]


@leaf
def has_forced(f: int, problem: LocalProblem) -> bool:
    """Return whether a variable of a factor must be on."""
    for slot in range(problem.offsets[f], problem.offsets[f + 1]):
        if problem.a[slot] == np.inf:
            return True
    return False
