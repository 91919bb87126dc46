"""Equal rows of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import IntArray


def distinct_rows(rows: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return where each distinct row of a matrix is first found, and its number for every row.

    Rows are compared byte by byte. ``np.unique(rows, axis=0)`` compares them column by column,
    in Python code of NumPy that loses a Ctrl-C.
    """
    if not rows.shape[1]:
        return np.arange(min(1, len(rows))), np.zeros(len(rows), dtype=np.int64)
    rows = np.ascontiguousarray(np.packbits(rows, axis=1) if rows.dtype == np.bool_ else rows)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return first, which.reshape(-1).astype(np.int64)
