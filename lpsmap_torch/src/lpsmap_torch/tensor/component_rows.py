"""The linear constraints of some components, as tables of equal shape."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import FloatArray, IntArray, offsets_of, ranges
from lpsmap_torch.tensor.constraint_rows import ConstraintRows

__all__ = ["ComponentRows"]


class ComponentRows:
    """The rows of some components of equal shape, with padding.

    Parameters
    ----------
    rows
        The rows of all components.
    components
        (n,) the components.
    place
        For each column, its place in the matrix of its component.
    shape
        The numbers of rows and columns of the matrices.
    """

    def __init__(
        self,
        rows: ConstraintRows,
        components: IntArray,
        place: IntArray,
        shape: tuple[int, int],
    ) -> None:
        self._shape = len(components), *shape
        first = np.searchsorted(rows.component, np.arange(components.max(initial=-1) + 2))
        selected, counts = ranges(first, components), np.diff(first)[components]
        instance = np.repeat(np.arange(len(components)), counts)
        row = selected - first[components][instance]
        self.numbers = np.full(self._shape[:2], -1)
        """(n, n_rows) numbers of the rows; -1 for padding."""
        self.numbers[instance, row] = selected
        self.low, self.high = np.full((2, *self._shape[:2]), [[[-np.inf]], [[np.inf]]])
        self.low[instance, row], self.high[instance, row] = rows.low[selected], rows.high[selected]
        entries, sizes = ranges(rows.offsets, selected), np.diff(rows.offsets)[selected]
        # the entries: their instances, rows, columns and coefficients
        self._of = np.repeat(instance, sizes)
        self._local = np.stack([np.repeat(row, sizes), place[rows.column[entries]]])
        self._coefficient = rows.coefficient[entries]

    def matrices(self) -> FloatArray:
        """Return the components' matrices, or one for all if they are equal."""
        n = self._shape[0]
        counts = np.bincount(self._of, minlength=n)
        if n and (counts == counts[0]).all():
            local, coefficient = self._local.reshape(2, n, -1), self._coefficient.reshape(n, -1)
            if (local == local[:, :1]).all() and (coefficient == coefficient[:1]).all():
                matrix = np.zeros((1, *self._shape[1:]))
                np.add.at(matrix[0], tuple(local[:, 0]), coefficient[0])
                return matrix
        matrix = np.zeros(self._shape)
        np.add.at(matrix, (self._of, *self._local), self._coefficient)
        return matrix

    def by(self, axis: int) -> tuple[IntArray, FloatArray]:
        """Return the other places and the coefficients of the entries of each row, or column."""
        n, n_rows, n_columns = self._shape
        flat = (self._of * n_rows + self._local[0]) * n_columns + self._local[1]
        flat, inverse = np.unique(flat, return_inverse=True)
        coefficient = np.bincount(inverse.reshape(-1), self._coefficient, len(flat))
        row, other = flat // n_columns, flat % n_columns
        key = row if axis == 0 else row // n_rows * n_columns + other
        other = other if axis == 0 else row % n_rows
        order = np.argsort(key, kind="stable")
        size = n * self._shape[1 + axis]
        counts = np.bincount(key, minlength=size)
        at = np.arange(len(flat)) - np.repeat(offsets_of(counts)[:-1], counts)
        width = max(int(counts.max(initial=0)), 1)
        places, table = np.zeros((size, width), dtype=np.int64), np.zeros((size, width))
        places[key[order], at], table[key[order], at] = other[order], coefficient[order]
        return places.reshape(n, -1, width), table.reshape(n, -1, width)
