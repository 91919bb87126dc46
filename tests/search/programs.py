"""Linear programs and their matrices, for judges."""

from __future__ import annotations

import numpy as np

from lpsmap_search.linear_programs import LinearProgram
from lpsmap_search.polytopes import Polytope
from lpsmap_search.sparse_matrix import SparseMatrix


def dense(matrix: SparseMatrix) -> np.ndarray:
    """Return a matrix as an array."""
    full = np.zeros((matrix.n_rows, matrix.n_columns))
    full[matrix.row, matrix.column] = matrix.value
    return full


def program_over(polytope: Polytope, scores: np.ndarray) -> LinearProgram:
    """Return the program that maximises ``<scores, counts>`` over a polytope."""
    return LinearProgram(
        dense(polytope.counts).T @ scores,
        np.zeros_like(polytope.upper),
        polytope.upper,
        polytope.matrix,
        polytope.row_lower,
        polytope.row_upper,
    )
