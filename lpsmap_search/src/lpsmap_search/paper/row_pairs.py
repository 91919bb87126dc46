"""The selection of products of rows in a relaxation."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lpsmap_core.api import IntArray
from lpsmap_search.paper.linear_rows import LinearRows
from lpsmap_search.sparse_matrix import SparseMatrix

Filter = int | float | Literal["objective"]
"""The products in addition to the concave envelopes: a number of random ones, as an integer; a
share of all, as a float; or ``"objective"``, those that contain a product of the objective,
``theta_m f_m`` for some m."""

Pairs = tuple[IntArray, IntArray]


def envelope_pairs(rows: LinearRows) -> Pairs:
    """Return the pairs whose products bound every ``theta_m f_m`` from above.

    These are ``(theta - l) (u_f - f)`` and ``(u - theta) (f - l_f)``, the concave envelope of
    McCormick (1976); Gormley & Eisner (2013, Eqs. 20-21).
    """
    theta = np.arange(rows.n_parameters)
    counts = theta + rows.n_parameters
    return (
        np.concatenate([rows.lower(theta), rows.upper(theta)]),
        np.concatenate([rows.upper(counts), rows.lower(counts)]),
    )


def all_pairs(rows: LinearRows) -> int:
    """Return the number of products at level one.

    These are the products of any two inequalities, including squares, and of any equality with any
    variable.
    """
    n = rows.n_inequalities - 1
    return n * (n + 1) // 2 + rows.n_equalities * rows.n_variables


def chosen_pairs(rows: LinearRows, which: Filter, rng: np.random.Generator) -> tuple[Pairs, Pairs]:
    """Return the pairs that a filter selects: inequalities and equalities.

    Parameters
    ----------
    rows
        The rows.
    which
        The filter.
    rng
        The random generator.

    Raises
    ------
    ValueError
        If the filter is invalid, or a number or share is out of range.
    """
    if which == "objective":
        nothing = np.zeros(0, dtype=np.int64)
        return objective_pairs(rows, rows.at_least_zero), (nothing, nothing)
    total = all_pairs(rows)
    size = _how_many(which, total)
    return _numbered(rows, rng.choice(total, size=size, replace=False))


def _how_many(which: Filter, total: int) -> int:
    """Return the number of products that a filter selects."""
    if isinstance(which, str):
        raise ValueError(
            f"products: got {which!r}; expected 'objective', a number of products, or a share of "
            "them as a float."
        )
    if isinstance(which, float):
        if not 0.0 <= which <= 1.0:
            raise ValueError(f"products: got the share {which}; expected 0.0 to 1.0.")
        return round(which * total)
    if which < 0:
        raise ValueError(f"products: got {which}; expected at least 0.")
    return min(which, total)


def _numbered(rows: LinearRows, number: IntArray) -> tuple[Pairs, Pairs]:
    """Return pairs by their indices among all."""
    n = rows.n_inequalities - 1
    n_inequalities = n * (n + 1) // 2
    t = np.sort(number[number < n_inequalities])
    i = ((np.sqrt(8.0 * t + 1.0) - 1.0) / 2.0).astype(np.int64)
    i += ((i + 1) * (i + 2) // 2 <= t).astype(np.int64) - (i * (i + 1) // 2 > t)
    j = t - i * (i + 1) // 2
    e, k = np.divmod(np.sort(number[number >= n_inequalities]) - n_inequalities, rows.n_variables)
    return (1 + j, 1 + i), (rows.equalities[e], rows.variable(k))


def objective_pairs(rows: LinearRows, others: SparseMatrix) -> Pairs:
    """Return pairs whose products contain some ``theta_m f_m``.

    Products of equalities are left out: only they contain products of logarithms with variables of
    parses, so they never bind.

    Parameters
    ----------
    rows
        The rows; inequalities are second in the pairs.
    others
        Rows that come first in the pairs if they contain a logarithm.
    """
    m = rows.n_parameters
    first, theta = _entries(others, 1, m)
    second, count = _entries(rows.at_least_zero, 1 + m, m)
    order = np.argsort(count, kind="stable")
    second, n_second = second[order], np.bincount(count, minlength=m)
    begin = np.cumsum(n_second) - n_second
    times = n_second[theta]
    at = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    pairs = np.stack([np.repeat(first, times), second[np.repeat(begin[theta], times) + at]])
    kept = np.unique(pairs, axis=1)
    return kept[0], kept[1]


def _entries(matrix: SparseMatrix, begin: int, size: int) -> tuple[IntArray, IntArray]:
    """Return rows and positions of entries in a range of columns."""
    column = matrix.column - begin
    used = (column >= 0) & (column < size)
    return matrix.row[used], column[used]
