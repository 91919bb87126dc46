"""The paper's relaxations as linear programs (Gormley & Eisner 2013, section 4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.linear_programs import LinearProgram
from lpsmap_search.paper.linear_rows import LinearRows, Ranges
from lpsmap_search.paper.products import (
    LinearisedProducts,
    linearised,
    monomial_bounds,
    monomial_codes,
    multiplied,
)
from lpsmap_search.paper.row_pairs import (
    Filter,
    Pairs,
    chosen_pairs,
    envelope_pairs,
    objective_pairs,
)
from lpsmap_search.paper.tangents import Tangents, tangent_rows
from lpsmap_search.sparse_matrix import SparseMatrix


class ProgramRows(NamedTuple):
    """Rows of a linear program."""

    matrix: SparseMatrix
    lower: FloatArray
    upper: FloatArray


class McCormickRelaxation:
    """Linear programs whose optimum is an upper bound for a box.

    The columns are the variables of the rows, and a variable for each monomial ``x_k x_l`` of the
    objective or of at least two products. A monomial of a single product is replaced by its best
    value within its bounds, which is equivalent.

    Parameters
    ----------
    rows
        The constraints on parameters, counts and parses.
    first
        (C + 1,) where the blocks of parameters begin.
    products
        The products of rows in addition to the concave envelopes.
    rng
        The random generator.

    Raises
    ------
    ValueError
        If the filter of products is invalid.
    """

    def __init__(
        self, rows: LinearRows, first: IntArray, products: Filter, rng: np.random.Generator
    ) -> None:
        self.rows, self._first = rows, first
        self._of_cuts = products == "objective"
        pairs, zero_pairs = chosen_pairs(rows, products, rng)
        one = 0 * rows.inequalities, 0 * rows.equalities  # products with 1 are the rows themselves
        at_least = [(rows.inequalities, one[0]), envelope_pairs(rows), pairs]
        self._n_at_least = sum(len(left) for left, _ in at_least)
        left, right = _joined([*at_least, (rows.equalities, one[1]), zero_pairs])
        pair_products = multiplied(rows.matrix, left, right)
        m = rows.n_parameters
        theta = np.arange(1, m + 1)
        objective = monomial_codes(theta, theta + m, rows.n_variables + 1)
        codes, times = np.unique(
            pair_products.code[pair_products.code > rows.n_variables], return_counts=True
        )
        if not self._of_cuts:  # cuts use further monomials
            codes = codes[times > 1]
        self._quadratic = np.unique(np.concatenate([objective, codes]))
        self._products = linearised(pair_products, self._quadratic, rows.n_variables + 1)
        self.objective = rows.n_variables + np.searchsorted(self._quadratic, objective)
        self.n_products = len(pairs[0]) + len(zero_pairs[0])

    @property
    def n_columns(self) -> int:
        """Number of columns of the programs."""
        return self.rows.n_variables + len(self._quadratic)

    @property
    def n_entries(self) -> int:
        """Number of entries of the matrices, without further tangents."""
        return len(self._products.column)

    def program(self, ranges: Ranges, cuts: Tangents) -> LinearProgram:
        """Return the relaxation in a box.

        Parameters
        ----------
        ranges
            Bounds of all variables.
        cuts
            Further tangents.
        """
        matrix, low, high = self._linear(self._products, self.rows.values(ranges), ranges)
        row_upper = np.full(len(low), np.inf)
        row_upper[self._n_at_least :] = -low[self._n_at_least :]
        more = self.cut_rows(ranges, cuts)
        objective = np.zeros(self.n_columns)
        objective[self.objective] = 1.0
        ends = monomial_bounds(self._quadratic, *ranges, self.rows.n_variables + 1)
        return LinearProgram(
            objective,
            np.concatenate([ranges.lower, ends[0]]),
            np.concatenate([ranges.upper, ends[1]]),
            SparseMatrix.stacked([matrix, more.matrix]),
            np.concatenate([-high, more.lower]),
            np.concatenate([row_upper, more.upper]),
        )

    def cut_rows(self, ranges: Ranges, cuts: Tangents) -> ProgramRows:
        """Return the rows of tangents, grouped by tangent.

        Parameters
        ----------
        ranges
            Bounds of all variables.
        cuts
            The tangents.
        """
        rows, n = self.rows, self.rows.n_variables + 1
        tangents = tangent_rows(self._first, cuts, n)
        left, right = self._cut_pairs(tangents)
        both = SparseMatrix.stacked([rows.matrix, tangents])
        pair_products = multiplied(both, left + rows.matrix.n_rows, right)
        values = np.concatenate([rows.values(ranges), tangents.value])
        products = linearised(pair_products, self._quadratic, n)
        matrix, _, high = self._linear(products, values, ranges)
        return ProgramRows(matrix, -high, np.full(len(high), np.inf))

    def _linear(
        self, products: LinearisedProducts, entries: FloatArray, ranges: Ranges
    ) -> tuple[SparseMatrix, FloatArray, FloatArray]:
        """Return the matrix of products, and bounds of the parts that it leaves out."""
        values = products.products.values(entries)
        low, high = products.rest(values, *ranges, self.rows.n_variables + 1)
        return products.rows(values), low, high

    def binding(self, cuts: Tangents, row_duals: FloatArray) -> Tangents:
        """Return the tangents with a binding row.

        Parameters
        ----------
        cuts
            The tangents of a program.
        row_duals
            The row duals of the solution.
        """
        left, _ = self._cut_pairs(tangent_rows(self._first, cuts, self.rows.n_variables + 1))
        cut_duals = row_duals[len(row_duals) - len(left) :]
        kept = np.unique(left[cut_duals != 0.0])
        return Tangents(cuts.block[kept], cuts.point[kept])

    def _cut_pairs(self, tangents: SparseMatrix) -> Pairs:
        """Return the products of tangents, grouped by tangent."""
        k = tangents.n_rows
        left, right = np.arange(k), np.zeros(k, dtype=np.int64)
        if self._of_cuts:
            left, right = _joined([(left, right), objective_pairs(self.rows, tangents)])
        order = np.argsort(left, kind="stable")
        return left[order], right[order]


def _joined(pairs: list[Pairs]) -> Pairs:
    left, right = zip(*pairs, strict=True)
    return np.concatenate(left), np.concatenate(right)
