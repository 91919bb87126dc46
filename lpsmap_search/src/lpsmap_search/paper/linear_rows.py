"""The linear rows of the paper's program, the factors of its products.

The variables are the logarithms of the parameters, the counts, and the variables of the parses, in
this order; column 0 of the rows is the constant. The coefficients of bounds change from box to box.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.paper.parse_rows import ParseRows
from lpsmap_search.paper.tangents import Tangents, tangent_rows
from lpsmap_search.sparse_matrix import SparseMatrix

__all__ = ["LinearRows", "Ranges"]


class Ranges(NamedTuple):
    """Bounds of all variables, of shape (n,)."""

    lower: FloatArray
    upper: FloatArray


class LinearRows:
    """Rows that are at least zero, followed by rows that are zero, and the variables.

    Parameters
    ----------
    first
        (C + 1,) where the blocks of parameters begin.
    parses
        Rows of the variables of the parses.
    ranges
        Bounds of all variables, valid in every box.
    tangents
        Tangents of the sums of probabilities.
    constraint
        A constraint on the counts, or None.

    Attributes
    ----------
    matrix
        The rows: ``1``; lower, then upper bounds of all variables; inequalities; equalities; the
        variables.
    at_least_zero
        The rows that are at least zero, including ``1``; they come first.
    n_inequalities
        Their number.
    n_equalities
        The number of rows that are zero.
    """

    def __init__(
        self,
        first: IntArray,
        parses: ParseRows,
        ranges: Ranges,
        tangents: Tangents,
        constraint: CountConstraint | None = None,
    ) -> None:
        n, m = len(ranges.lower), int(first[-1])
        inequalities = [tangent_rows(first, tangents, n + 1)]
        inequalities.append(_shifted(parses.inequalities, 2 * m, n + 1))
        if constraint is not None:
            inequalities.append(_constraint_row(constraint, n + 1))
        equalities = [_shifted(parses.equalities, 2 * m, n + 1), _counts(parses.counts, n + 1)]
        self.matrix = SparseMatrix.stacked(
            [
                _constants(np.ones(1), n + 1),
                _bounds(ranges.lower, 1.0),
                _bounds(ranges.upper, -1.0),
                *inequalities,
                *equalities,
                _variables(n),
            ]
        )
        self.n_variables, self.n_parameters = n, m
        self.n_inequalities = 1 + 2 * n + sum(part.n_rows for part in inequalities)
        self.n_equalities = sum(part.n_rows for part in equalities)
        end = self.matrix.start[self.n_inequalities]
        self.at_least_zero = SparseMatrix(
            self.matrix.start[: self.n_inequalities + 1],
            self.matrix.column[:end],
            self.matrix.value[:end],
            n + 1,
        )

    def lower(self, k: IntArray) -> IntArray:
        """Return the rows ``x_k - l_k`` of variables."""
        return 1 + k

    def upper(self, k: IntArray) -> IntArray:
        """Return the rows ``u_k - x_k`` of variables."""
        return 1 + self.n_variables + k

    @property
    def inequalities(self) -> IntArray:
        """The rows that are at least zero, other than ``1`` and bounds."""
        return np.arange(1 + 2 * self.n_variables, self.n_inequalities)

    @property
    def equalities(self) -> IntArray:
        """The rows that are zero."""
        return self.n_inequalities + np.arange(self.n_equalities)

    def variable(self, k: IntArray) -> IntArray:
        """Return the rows ``x_k`` of variables."""
        return self.n_inequalities + self.n_equalities + k

    def values(self, ranges: Ranges) -> FloatArray:
        """Return the entries of the rows for other bounds of the variables."""
        values, n = self.matrix.value.copy(), self.n_variables
        # the row 1 has one entry, each bound has two, the constant first
        values[1 : 1 + 2 * n : 2] = -ranges.lower
        values[1 + 2 * n : 1 + 4 * n : 2] = ranges.upper
        return values


def _constants(values: FloatArray, n_columns: int) -> SparseMatrix:
    n = len(values)
    return SparseMatrix(np.arange(n + 1), np.zeros(n, dtype=np.int64), values, n_columns)


def _variables(n: int) -> SparseMatrix:
    return SparseMatrix(np.arange(n + 1), np.arange(1, n + 1), np.ones(n), n + 1)


def _bounds(bounds: FloatArray, sign: float) -> SparseMatrix:
    """Return ``sign * (x - bound)`` for all variables."""
    n = len(bounds)
    column = np.stack([np.zeros(n, dtype=np.int64), np.arange(1, n + 1)], axis=1)
    value = np.stack([-sign * bounds, np.full(n, sign)], axis=1)
    return SparseMatrix(2 * np.arange(n + 1), column.reshape(-1), value.reshape(-1), n + 1)


def _shifted(matrix: SparseMatrix, shift: int, n_columns: int) -> SparseMatrix:
    """Return rows with all columns except the constant shifted to the right."""
    column = np.where(matrix.column > 0, matrix.column + shift, 0)
    return SparseMatrix(matrix.start, column, matrix.value, n_columns)


def _counts(counts: SparseMatrix, n_columns: int) -> SparseMatrix:
    """Return ``<row, y> - f_m`` for all counts."""
    m = counts.n_rows
    row = np.concatenate([counts.row, np.arange(m)])
    column = np.concatenate([counts.column + 2 * m + 1, np.arange(m) + m + 1])
    value = np.concatenate([counts.value, -np.ones(m)])
    return SparseMatrix.from_entries(row, column, value, (m, n_columns))


def _constraint_row(constraint: CountConstraint, n_columns: int) -> SparseMatrix:
    m = len(constraint.weights)
    used = np.flatnonzero(constraint.weights)
    column = np.concatenate([[0], used + m + 1])
    value = np.concatenate([[-constraint.least], constraint.weights[used]])
    return SparseMatrix(np.array([0, len(column)]), column, value, n_columns)
