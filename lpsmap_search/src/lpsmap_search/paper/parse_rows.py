"""Rows of a polytope of parses as equalities and inequalities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray
from lpsmap_search.polytopes import Polytope
from lpsmap_search.sparse_matrix import SparseMatrix

__all__ = ["ParseRows", "parse_rows"]


class ParseRows(NamedTuple):
    """Constraints on the parses. Column 0 of the rows is the constant; the variables follow."""

    equalities: SparseMatrix
    """Rows that are zero."""
    inequalities: SparseMatrix
    """Rows that are at least zero."""
    counts: SparseMatrix
    """(M, P) matrix; the counts are ``counts @ y``."""
    upper: FloatArray
    """(P,) upper bounds of the variables; the lower bounds are zero."""


def parse_rows(polytope: Polytope) -> ParseRows:
    """Return the rows of a polytope."""
    lower, upper = polytope.row_lower, polytope.row_upper
    equal = lower == upper
    below, above = ~equal & (upper < np.inf), ~equal & (lower > -np.inf)
    return ParseRows(
        _expressions(polytope.matrix, equal, -lower, 1.0),
        SparseMatrix.stacked(
            [
                _expressions(polytope.matrix, above, -lower, 1.0),
                _expressions(polytope.matrix, below, upper, -1.0),
            ]
        ),
        polytope.counts,
        polytope.upper,
    )


def _expressions(
    matrix: SparseMatrix, chosen: BoolArray, constants: FloatArray, sign: float
) -> SparseMatrix:
    """Return ``constant + sign * <row, y>`` for chosen rows."""
    number = np.cumsum(chosen) - 1
    kept, n = chosen[matrix.row], int(chosen.sum())
    return SparseMatrix.from_entries(
        np.concatenate([np.arange(n), number[matrix.row[kept]]]),
        np.concatenate([np.zeros(n, dtype=np.int64), 1 + matrix.column[kept]]),
        np.concatenate([constants[chosen], sign * matrix.value[kept]]),
        (n, 1 + matrix.n_columns),
    )
