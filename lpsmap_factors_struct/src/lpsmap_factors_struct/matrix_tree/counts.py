"""Exact numbers of non-projective trees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import IntArray

Integers = npt.NDArray[np.object_]


def count_trees(arcs: IntArray, single_root: bool) -> int:
    """Return the number of trees, by the matrix-tree theorem (Tutte 1984).

    Parameters
    ----------
    arcs
        (n, n) the numbers of arcs to every word, the rows, from every word; from the root on the
        diagonal.
    single_root
        Whether only trees with one root arc count. Their Laplacian has the root arcs as its first
        column, and nowhere else (Koo et al. 2007).
    """
    n = len(arcs)
    inner: Integers = arcs.astype(object)
    inner[np.arange(n), np.arange(n)] = 0
    root: Integers = np.diagonal(arcs).astype(object)
    laplacian = np.diag(inner.sum(axis=1) + (0 if single_root else root)) - inner
    if single_root and n:
        laplacian[:, 0] = root
    return _determinant(laplacian)


def _determinant(matrix: Integers) -> int:
    """Return the determinant of a matrix of Python integers, without fractions (Bareiss 1968)."""
    left, sign, previous = matrix, 1, 1
    while len(left) > 1:
        rows = np.flatnonzero(left[:, 0])
        if not rows.size:
            return 0
        if rows[0] > 0:
            left[[0, rows[0]]], sign = left[[rows[0], 0]], -sign
        pivot = left[0, 0]
        left = (left[1:, 1:] * pivot - np.multiply.outer(left[1:, 0], left[0, 1:])) // previous
        previous = pivot
    return sign * int(left[0, 0]) if len(left) else 1
