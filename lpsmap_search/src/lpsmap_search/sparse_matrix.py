"""Sparse matrices in compressed row format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import FloatArray, IntArray, cached_property

Entries = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""Rows, columns and values of entries, which broadcast against each other."""


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix in compressed sparse row format. Stored entries may be zero."""

    start: IntArray
    """(m + 1,) row i has the entries ``start[i]`` to ``start[i + 1]``."""
    column: IntArray
    """The column of each entry; ascending within a row."""
    value: FloatArray
    """The value of each entry."""
    n_columns: int

    @classmethod
    def from_entries(
        cls,
        row: npt.ArrayLike,
        column: npt.ArrayLike,
        value: npt.ArrayLike,
        shape: tuple[int, int],
    ) -> SparseMatrix:
        """Return a matrix from entries in any order; duplicates are summed.

        Parameters
        ----------
        row, column, value
            Rows, columns and values of the entries; broadcast against each other.
        shape
            Numbers of rows and columns.
        """
        i, j, v = (np.ravel(x) for x in np.broadcast_arrays(row, column, value))
        keys = i.astype(np.int64) * shape[1] + j
        places, entry = np.unique(keys, return_inverse=True)
        values = sums_at(entry.reshape(-1), v, len(places))
        start = np.searchsorted(places, np.arange(shape[0] + 1) * shape[1])
        return cls(start, places % max(shape[1], 1), values, shape[1])

    @classmethod
    def from_pieces(
        cls,
        pieces: Sequence[Entries],
        shape: tuple[int, int],
    ) -> SparseMatrix:
        """Return a matrix from the entries of several pieces.

        Parameters
        ----------
        pieces
            At least one piece; rows, columns and values of each as in `from_entries`.
        shape
            Numbers of rows and columns.
        """
        broadcast = [[np.ravel(x) for x in np.broadcast_arrays(*piece)] for piece in pieces]
        row, column, value = (np.concatenate(x) for x in zip(*broadcast, strict=True))
        return cls.from_entries(row, column, value, shape)

    @classmethod
    def stacked(cls, matrices: Sequence[SparseMatrix]) -> SparseMatrix:
        """Stack matrices vertically.

        Parameters
        ----------
        matrices
            At least one matrix; all with the same number of columns.
        """
        sizes = [np.diff(matrix.start) for matrix in matrices]
        return cls(
            np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
            np.concatenate([matrix.column for matrix in matrices]),
            np.concatenate([matrix.value for matrix in matrices]),
            matrices[0].n_columns,
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.start) - 1

    @cached_property
    def row(self) -> IntArray:
        """The row of each entry."""
        return np.repeat(np.arange(self.n_rows), np.diff(self.start))

    def __matmul__(self, x: FloatArray) -> FloatArray:
        return sums_at(self.row, self.value * x[self.column], self.n_rows)

    def entries(self, row: npt.ArrayLike, column: npt.ArrayLike) -> IntArray:
        """Return the positions of places among the stored entries.

        Parameters
        ----------
        row, column
            Rows and columns of places with stored entries.

        Raises
        ------
        ValueError
            If a place has no entry.
        """
        keys = np.asarray(row, dtype=np.int64) * self.n_columns + np.asarray(column)
        places = self.row * self.n_columns + self.column
        entry: IntArray = np.minimum(np.searchsorted(places, keys), max(len(places) - 1, 0))
        if not len(places) or (places[entry] != keys).any():
            raise ValueError("row, column: got a place without an entry; expected stored entries.")
        return entry


def sums_at(places: IntArray, values: FloatArray, n: int) -> FloatArray:
    """Return the sums of the values at each of n places.

    Parameters
    ----------
    places
        The place of each value, 0 to n - 1.
    values
        The values.
    n
        The number of places.
    """
    return np.asarray(np.bincount(places, values, minlength=n), dtype=np.float64)
