"""Products of linear rows, linearised: the reformulation-linearisation technique at level one.

A row is an expression ``g_0 + sum_k g_k x_k`` that is at least zero, or zero, at every feasible
point. The product of two rows that are at least zero, or of a row that is zero and any other, has
the same property. With a variable w_kl for each monomial ``x_k x_l``, products are linear rows
again (Sherali & Adams 1990; Gormley & Eisner 2013, Eq. 26).

Rows are those of a `SparseMatrix` whose column 0 is the constant. The product of the row ``1`` and
a row is that row, so a single list of pairs describes both rows and products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_search.sparse_matrix import SparseMatrix


class Products(NamedTuple):
    """The structure of products, independent of the coefficients of rows.

    Coefficient e is the sum of ``value[left[t]] * value[right[t]]`` over its terms t.
    """

    start: IntArray
    """(K + 1,) product k has the coefficients ``start[k]`` to ``start[k + 1]``."""
    code: IntArray
    """The monomial of each coefficient, see `monomial_codes`; ascending within a product."""
    first_term: IntArray
    """The offsets of the terms of each coefficient."""
    left: IntArray
    """For each term, an entry of the first row."""
    right: IntArray
    """For each term, an entry of the second row."""

    def values(self, value: FloatArray) -> FloatArray:
        """Return the coefficients, given the entries of the rows."""
        if not len(self.first_term):
            return np.zeros(0)
        return np.add.reduceat(value[self.left] * value[self.right], self.first_term)


def multiplied(rows: SparseMatrix, first: IntArray, second: IntArray) -> Products:
    """Multiply pairs of rows.

    Parameters
    ----------
    rows
        The rows.
    first, second
        (K,) indices of the rows of each pair.
    """
    sizes = np.diff(rows.start)
    n_terms = sizes[first] * sizes[second]
    pair = np.repeat(np.arange(len(first)), n_terms)
    at = np.arange(len(pair)) - (np.cumsum(n_terms) - n_terms)[pair]
    other = sizes[second][pair]
    left = rows.start[first][pair] + at // other
    right = rows.start[second][pair] + at % other
    code = monomial_codes(rows.column[left], rows.column[right], rows.n_columns)
    order = np.lexsort((code, pair))
    pair, code = pair[order], code[order]
    begins = np.ones(len(pair), dtype=np.bool_)
    begins[1:] = (pair[1:] != pair[:-1]) | (code[1:] != code[:-1])
    first_term = np.flatnonzero(begins)
    n_coefficients = np.bincount(pair[first_term], minlength=len(first))
    start = np.concatenate([[0], np.cumsum(n_coefficients)])
    return Products(start, code[first_term], first_term, left[order], right[order])


def monomial_codes(k: IntArray, m: IntArray, n_columns: int) -> IntArray:
    """Return codes of the monomials of pairs of columns.

    The code of the constant is 0, those of linear monomials are their columns, and the others are
    greater.

    Parameters
    ----------
    k, m
        Columns.
    n_columns
        The number of columns.
    """
    return np.minimum(k, m) * n_columns + np.maximum(k, m)


class LinearisedProducts(NamedTuple):
    """Products as rows of a linear program."""

    products: Products
    row: IntArray
    """The product of each coefficient."""
    is_kept: BoolArray
    """Whether a coefficient is in the matrix: neither a constant nor of a monomial left out."""
    start: IntArray
    """The row offsets of the matrix."""
    column: IntArray
    """The columns of the matrix: x_k has column k - 1, and monomials follow in the order of their
    codes."""
    n_columns: int

    def rows(self, values: FloatArray) -> SparseMatrix:
        """Return the matrix, given the coefficients of the products."""
        return SparseMatrix(self.start, self.column, values[self.is_kept], self.n_columns)

    def rest(
        self, values: FloatArray, lower: FloatArray, upper: FloatArray, n_columns: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return bounds of the part of each product that the matrix leaves out.

        Parameters
        ----------
        values
            The coefficients of the products.
        lower, upper
            Bounds of the variables.
        n_columns
            The number of columns of the multiplied rows.
        """
        out = ~self.is_kept
        row, factor = self.row[out], values[out]
        low, high = monomial_bounds(self.products.code[out], lower, upper, n_columns)
        ends, n = np.stack([factor * low, factor * high]), len(self.start) - 1
        least: FloatArray = np.bincount(row, ends.min(axis=0), minlength=n).astype(np.float64)
        most: FloatArray = np.bincount(row, ends.max(axis=0), minlength=n).astype(np.float64)
        return least, most


def monomial_bounds(
    code: IntArray, lower: FloatArray, upper: FloatArray, n_columns: int
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of monomials.

    Parameters
    ----------
    code
        The codes of the monomials.
    lower, upper
        Bounds of the variables.
    n_columns
        The number of columns of the multiplied rows.
    """
    bounds = [np.append(1.0, bound) for bound in (lower, upper)]
    k, m = np.divmod(code, n_columns)
    ends = [a[k] * b[m] for a in bounds for b in bounds]
    low, high = np.min(ends, axis=0), np.max(ends, axis=0)
    return low.astype(np.float64), high.astype(np.float64)


def linearised(products: Products, quadratic: IntArray, n_columns: int) -> LinearisedProducts:
    """Assign columns to the monomials of products.

    Parameters
    ----------
    products
        The products.
    quadratic
        Codes of the monomials of degree two that are variables, ascending. Others are left out.
    n_columns
        The number of columns of the multiplied rows.
    """
    code, n = products.code, len(products.start) - 1
    row = np.repeat(np.arange(n), np.diff(products.start))
    place = np.minimum(np.searchsorted(quadratic, code), len(quadratic) - 1)
    is_linear = (code > 0) & (code < n_columns)
    is_kept = is_linear | (quadratic[place] == code)
    return LinearisedProducts(
        products,
        row,
        is_kept,
        np.concatenate([[0], np.cumsum(np.bincount(row[is_kept], minlength=n))]),
        np.where(is_linear, code - 1, n_columns - 1 + place)[is_kept],
        n_columns - 1 + len(quadratic),
    )
