"""The linear rows of the paper's program, the factors of its products.

The variables are the logarithms of the parameters, the counts, and the variables of the parses, in
this order; column 0 of the rows is the constant. The coefficients of bounds change from box to box.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_search.constraints import CountConstraint
from lpsmap_search.paper.tangents import Tangents, tangent_rows
from lpsmap_search.polytopes import Polytope
from lpsmap_search.sparse_matrix import Entries, SparseMatrix


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
        The polytope of the parses.
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
        parses: Polytope,
        ranges: Ranges,
        tangents: Tangents,
        constraint: CountConstraint | None = None,
    ) -> None:
        n, m = len(ranges.lower), int(first[-1])
        x, counted, of_parses = 1 + np.arange(n), 1 + m + np.arange(m), 1 + 2 * m
        bounds: list[Entries] = [
            (0, 0, 1.0),
            (x, 0, -ranges.lower),
            (x, x, 1.0),
            (n + x, 0, ranges.upper),
            (n + x, x, -1.0),
        ]
        low, high = parses.row_lower, parses.row_upper
        equal = low == high
        above, below = ~equal & (low > -np.inf), ~equal & (high < np.inf)
        inequalities = [
            tangent_rows(first, tangents, n + 1),
            _expressions(parses.matrix, above, -low, 1.0, (of_parses, n + 1)),
            _expressions(parses.matrix, below, high, -1.0, (of_parses, n + 1)),
        ]
        if constraint is not None:
            used = np.flatnonzero(constraint.weights)
            terms: list[Entries] = [
                (0, 0, -constraint.least),
                (0, counted[used], constraint.weights[used]),
            ]
            inequalities.append(SparseMatrix.from_pieces(terms, (1, n + 1)))
        of_counts, of_variables = parses.counts, np.arange(n)
        counts: list[Entries] = [
            (of_counts.row, of_parses + of_counts.column, of_counts.value),
            (np.arange(m), counted, -1.0),
        ]
        equalities = [
            _expressions(parses.matrix, equal, -low, 1.0, (of_parses, n + 1)),
            SparseMatrix.from_pieces(counts, (m, n + 1)),
        ]
        self.matrix = SparseMatrix.stacked(
            [
                SparseMatrix.from_pieces(bounds, (1 + 2 * n, n + 1)),
                *inequalities,
                *equalities,
                SparseMatrix.from_entries(of_variables, x, 1.0, (n, n + 1)),
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


def _expressions(
    matrix: SparseMatrix,
    chosen: BoolArray,
    constants: FloatArray,
    sign: float,
    columns: tuple[int, int],
) -> SparseMatrix:
    """Return ``constant + sign * <row, y>`` for chosen rows.

    `columns` are the column of the first variable y, and the number of all columns.
    """
    first, n_columns = columns
    number, n = np.cumsum(chosen) - 1, int(chosen.sum())
    kept = chosen[matrix.row]
    terms = number[matrix.row[kept]], first + matrix.column[kept], sign * matrix.value[kept]
    return SparseMatrix.from_pieces([(np.arange(n), 0, constants[chosen]), terms], (n, n_columns))
