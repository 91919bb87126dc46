"""Shared code of factors over pairs of a row and a column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import FloatArray

__all__ = ["pairs_vertex", "rectangles"]


def rectangles(factor: Factor) -> tuple[FloatArray, FloatArray]:
    """Return every factor's numbers of rows and of columns, within its lengths."""
    if factor.lengths is None:
        rows, columns = factor.event_shape
        return factor.per_factor("rows", rows), factor.per_factor("columns", columns)
    rows, columns = factor.lengths.astype(np.float64).T
    return rows, columns


def pairs_vertex(view: Any, pairs: Iterable[tuple[int, int]]) -> FloatArray:
    """Return the 0/1 matrix of `pairs`, for the row view of a factor with `rectangles`."""
    variables = np.zeros((int(view.n_rows), int(view.n_columns)))
    for pair in pairs:
        variables[pair] = 1.0
    return variables
