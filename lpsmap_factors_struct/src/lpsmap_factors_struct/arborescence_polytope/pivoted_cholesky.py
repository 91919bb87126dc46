"""Pivoted Cholesky factorisation of positive semidefinite matrices."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray, IntArray

DEPENDENT = 1e-10
"""A row with a relative residual below this is linearly dependent on the previous rows."""


@leaf
def factorise(matrix: FloatArray, order: IntArray, size: int, factor: FloatArray) -> int:
    """Factorise the rows and columns ``order[:size]`` as ``L L^T``, the best conditioned first.

    Permutes `order`, and returns the rank. Row i of the factor belongs to ``order[i]``. Rows beyond
    the rank depend on the rows before (Higham 1990).
    """
    for i in range(size):
        factor[i, i] = matrix[order[i], order[i]]
    for rank in range(size):
        pivot, most = -1, DEPENDENT
        for i in range(rank, size):
            if factor[i, i] > most * matrix[order[i], order[i]]:
                pivot, most = i, factor[i, i] / matrix[order[i], order[i]]
        if pivot < 0:
            return rank
        order[rank], order[pivot] = order[pivot], order[rank]
        for j in range(rank):
            factor[rank, j], factor[pivot, j] = factor[pivot, j], factor[rank, j]
        root = np.sqrt(factor[pivot, pivot])
        factor[pivot, pivot] = factor[rank, rank]
        factor[rank, rank] = root
        for i in range(rank + 1, size):
            entry = matrix[order[i], order[rank]]
            for j in range(rank):
                entry -= factor[i, j] * factor[rank, j]
            factor[i, rank] = entry / root
            factor[i, i] -= factor[i, rank] * factor[i, rank]
    return size


@leaf
def solve(factor: FloatArray, order: IntArray, rank: int, values: FloatArray) -> None:
    """Solve for ``values[order[:rank]]`` in place."""
    solve_lower(factor, order, rank, values)
    solve_upper(factor, order, rank, values)


@leaf
def solve_lower(factor: FloatArray, order: IntArray, rank: int, values: FloatArray) -> None:
    """Multiply ``values[order[:rank]]`` with the inverse of L."""
    for i in range(rank):
        value = values[order[i]]
        for j in range(i):
            value -= factor[i, j] * values[order[j]]
        values[order[i]] = value / factor[i, i]


@leaf
def solve_upper(factor: FloatArray, order: IntArray, rank: int, values: FloatArray) -> None:
    """Multiply ``values[order[:rank]]`` with the inverse of the transpose of L."""
    for i in range(rank - 1, -1, -1):
        value = values[order[i]]
        for j in range(i + 1, rank):
            value -= factor[j, i] * values[order[j]]
        values[order[i]] = value / factor[i, i]
