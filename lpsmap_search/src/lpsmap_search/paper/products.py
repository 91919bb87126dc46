"""Products of linear rows, linearised: the reformulation-linearisation technique at level one.

A row is an expression ``g_0 + sum_k g_k x_k`` that is at least zero, or zero, at every feasible
point. So is the product of two rows that are at least zero, or of one that is zero and any other.
Where each monomial ``x_k x_l`` has become a variable w_kl, products are linear rows again
(Sherali & Adams 1990; Gormley & Eisner 2013, Eq. 26).

Rows are those of a `SparseMatrix` whose column 0 is the constant. The row ``1``, times a row, is
that row, so that rows and products come from one list of pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_search.arrays import BoolArray, FloatArray, IntArray
from lpsmap_search.sparse_matrix import SparseMatrix

__all__ = ["LinearisedProducts", "Products", "linearised", "monomial_codes", "multiplied"]


class Products(NamedTuple):
    """Where the coefficients of products come from, whatever those of their rows.

    Coefficient e is the sum of ``value[left[t]] * value[right[t]]`` over its terms t.
    """

    start: IntArray
    """(K + 1,) product k has the coefficients ``start[k]`` to ``start[k + 1]``."""
    code: IntArray
    """The monomial of each coefficient, see `monomial_codes`; ascending within a product."""
    first_term: IntArray
    """Where the terms of each coefficient begin."""
    left: IntArray
    """An entry of the first row, for each term."""
    right: IntArray
    """An entry of the second row."""

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
        (K,) numbers of the rows of each pair.
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
    """Return numbers of the monomials of pairs of columns.

    The constant is 0, the linear ones are the numbers of their columns, and the others greater.

    Parameters
    ----------
    k, m
        Columns.
    n_columns
        How many there are.
    """
    return np.minimum(k, m) * n_columns + np.maximum(k, m)


class LinearisedProducts(NamedTuple):
    """Products as rows of a linear program."""

    products: Products
    constant: IntArray
    """The products that have a constant."""
    is_constant: BoolArray
    """Whether a coefficient is that."""
    start: IntArray
    """Of the matrix without constants."""
    column: IntArray
    """Of the matrix: x_k has column k - 1, and monomials follow in the order of their codes."""
    n_columns: int

    def rows(self, value: FloatArray) -> tuple[SparseMatrix, FloatArray]:
        """Return the matrix, and (K,) the constants, given the entries of the rows."""
        values = self.products.values(value)
        constants = np.zeros(len(self.start) - 1)
        constants[self.constant] = values[self.is_constant]
        matrix = SparseMatrix(self.start, self.column, values[~self.is_constant], self.n_columns)
        return matrix, constants


def linearised(products: Products, quadratic: IntArray, n_columns: int) -> LinearisedProducts:
    """Give the monomials of products their columns.

    Parameters
    ----------
    products
        The products.
    quadratic
        Codes of the monomials of degree two that are variables, ascending; all that occur.
    n_columns
        Of the rows that were multiplied.
    """
    is_constant = products.code == 0
    own = np.repeat(np.arange(len(products.start) - 1), np.diff(products.start))
    code = products.code[~is_constant]
    column = np.where(code < n_columns, code - 1, n_columns - 1 + np.searchsorted(quadratic, code))
    kept = np.bincount(own[~is_constant], minlength=len(products.start) - 1)
    return LinearisedProducts(
        products,
        own[is_constant],
        is_constant,
        np.concatenate([[0], np.cumsum(kept)]),
        column,
        n_columns - 1 + len(quadratic),
    )
