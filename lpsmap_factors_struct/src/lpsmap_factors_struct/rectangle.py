"""Shared code of factors over pairs of a row and a column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import FloatArray


def rectangles(factor: Factor) -> tuple[FloatArray, FloatArray]:
    """Register `n_rows` and `n_columns` of every factor, within its lengths."""
    rows, columns = (
        factor.event_shape
        if factor.lengths is None
        else factor.lengths.T.reshape(2, *factor.batch_shape)
    )
    return factor.per_factor("n_rows", rows), factor.per_factor("n_columns", columns)


def pairs_vertex(view: Any, pairs: Iterable[tuple[int, int]]) -> FloatArray:
    """Return the 0/1 matrix of `pairs`, for the row view of a factor with `rectangles`."""
    variables = np.zeros((int(view.n_rows), int(view.n_columns)))
    for pair in pairs:
        variables[pair] = 1.0
    return variables
