"""The linear constraints of some components, as tables of equal shape."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import FloatArray, IntArray, ranges
from lpsmap_torch.tensor.constraint_rows import ConstraintRows


class ComponentRows:
    """The rows of some components, in matrices of equal shape, with padding.

    The rows are those of all components, and `place` is the place of each column in the matrix of
    its component.
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
