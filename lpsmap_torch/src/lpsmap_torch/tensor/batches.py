"""Components of similar size as batches of constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, offsets_of, ranges
from lpsmap_torch.tensor.batch import Batch, DenseBatch, Members, SparseBatch
from lpsmap_torch.tensor.constraint_rows import ConstraintRows, constraint_rows_of

__all__ = ["batches_of"]

MAX_ENTRIES = 2**26
"""Maximum number of entries of all matrices of a batch: half a gigabyte of numbers."""

MAX_PRODUCTS = 2**23
"""Maximum number of entries of a shared table of the products of a matrix's columns."""

MAX_DENSE_ROWS, MAX_DENSE_ENTRIES = 1024, 2**24
"""Maximum number of rows of a component, and of entries of its matrix, to be factorised."""


class _Columns(NamedTuple):
    """The columns of components."""

    order: IntArray
    """The columns in the order of their components."""
    offsets: IntArray
    """Component c has the columns ``order[offsets[c]:offsets[c + 1]]``."""
    place: IntArray
    """For each column, its number in its component."""


def batches_of(part: Part, selected: BoolArray) -> Iterator[Batch]:
    """Yield the batches of the selected components, on the host.

    A batch has sizes up to the same power of two, so that there are few batches.

    Parameters
    ----------
    part
        The part.
    selected
        (n_components,) flags of the components; linear constraints must describe them.
    """
    rows, component = part.derived(constraint_rows_of)
    counts = np.bincount(component, minlength=part.n_components)
    order = np.argsort(component, kind="stable")
    offsets, place = offsets_of(counts), np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(offsets[:-1], counts)
    columns = _Columns(order, offsets, place)
    n_rows = np.bincount(rows.component, minlength=part.n_components)
    components = np.flatnonzero(selected)
    has_linear = counts > np.diff(part.first_variable)
    size = np.ceil(np.log2(np.maximum(np.stack([n_rows, counts]), 1)))
    keys = np.vstack([size, has_linear])[:, components]
    _, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    for number in range(group.max(initial=-1) + 1):
        members = components[group == number]
        shape = max(int(n_rows[members].max()), 1), int(counts[members].max())
        is_dense = shape[0] <= MAX_DENSE_ROWS and shape[0] * shape[1] <= MAX_DENSE_ENTRIES
        entries = shape[0] * shape[1] if is_dense else 64 * sum(shape)
        for of_batch in np.array_split(members, -(-len(members) * entries // MAX_ENTRIES)):
            yield _Builder(part, rows, columns, of_batch, shape).batch(is_dense)


class _Builder:
    """Builds a batch.

    Parameters
    ----------
    part, rows, columns
        The part, its rows, and its columns.
    components
        The components of the batch.
    shape
        The numbers of rows and columns, with padding.
    """

    def __init__(
        self,
        part: Part,
        rows: ConstraintRows,
        columns: _Columns,
        components: IntArray,
        shape: tuple[int, int],
    ) -> None:
        self._rows, self._components, self._shape = rows, components, shape
        n_rows, n_columns = shape
        first_row = np.searchsorted(rows.component, np.arange(part.n_components + 1))
        self._selected = ranges(first_row, components)
        instance = np.repeat(np.arange(len(components)), np.diff(first_row)[components])
        self._instance, self._row = instance, self._selected - first_row[components][instance]
        n_own = part.n_variables + part.n_additionals
        auxiliary, padding = n_own, n_own + 1
        self._padding = padding
        place = _padded(columns.offsets, components, n_columns, -1)
        self._columns = np.where(place < 0, padding, np.append(columns.order, 0)[place])
        self._columns[(place >= 0) & (self._columns >= n_own)] = auxiliary
        self._is_linear = self._columns >= part.n_variables
        table = _padded(first_row, components, n_rows, -1)
        self._members = Members(components, torch.from_numpy(self._columns), table)
        entries = ranges(rows.offsets, self._selected)
        of_row = np.repeat(np.arange(len(self._selected)), np.diff(rows.offsets)[self._selected])
        # the entries: their instances, rows, columns and coefficients
        self._of = instance[of_row]
        self._local = np.stack([self._row[of_row], columns.place[rows.column[entries]]])
        self._coefficient = rows.coefficient[entries]

    def batch(self, is_dense: bool) -> Batch:
        """Return the batch."""
        n = len(self._components)
        padding = self._padding
        low, high = np.full((n, self._shape[0]), -np.inf), np.full((n, self._shape[0]), np.inf)
        low[self._instance, self._row] = self._rows.low[self._selected]
        high[self._instance, self._row] = self._rows.high[self._selected]
        inside = self._is_linear & (self._columns != padding)
        linear = torch.from_numpy(self._is_linear) if inside.any() else None
        bounds = torch.from_numpy(low), torch.from_numpy(high)
        if not is_dense:
            tables = (torch.from_numpy(x) for x in (*self._by(0), *self._by(1)))
            return SparseBatch(self._members, *bounds, linear, *tables)
        matrix, products = self._matrices(), None
        if len(matrix) == 1 < n and matrix[0].size * self._shape[0] <= MAX_PRODUCTS:
            outer = np.einsum("iv,jv->vij", matrix[0], matrix[0])
            products = torch.from_numpy(outer.reshape(self._shape[1], -1))
        return DenseBatch(self._members, *bounds, linear, torch.from_numpy(matrix), products)

    def _matrices(self) -> FloatArray:
        """Return the components' matrices, or one for all if they are equal."""
        n = len(self._components)
        counts = np.bincount(self._of, minlength=n)
        if n and (counts == counts[0]).all():
            local, coefficient = self._local.reshape(2, n, -1), self._coefficient.reshape(n, -1)
            if (local == local[:, :1]).all() and (coefficient == coefficient[:1]).all():
                matrix = np.zeros((1, *self._shape))
                np.add.at(matrix[0], tuple(local[:, 0]), coefficient[0])
                return matrix
        matrix = np.zeros((n, *self._shape))
        np.add.at(matrix, (self._of, *self._local), self._coefficient)
        return matrix

    def _by(self, axis: int) -> tuple[IntArray, FloatArray]:
        """Return the other places and the coefficients of the entries of each row, or column."""
        n, (n_rows, n_columns) = len(self._components), self._shape
        flat = (self._of * n_rows + self._local[0]) * n_columns + self._local[1]
        flat, inverse = np.unique(flat, return_inverse=True)
        coefficient = np.bincount(inverse.reshape(-1), self._coefficient, len(flat))
        row, other = flat // n_columns, flat % n_columns
        key = row if axis == 0 else row // n_rows * n_columns + other
        other = other if axis == 0 else row % n_rows
        order = np.argsort(key, kind="stable")
        size = n * self._shape[axis]
        counts = np.bincount(key, minlength=size)
        at = np.arange(len(flat)) - np.repeat(offsets_of(counts)[:-1], counts)
        width = max(int(counts.max(initial=0)), 1)
        places, table = np.zeros((size, width), dtype=np.int64), np.zeros((size, width))
        places[key[order], at], table[key[order], at] = other[order], coefficient[order]
        return places.reshape(n, -1, width), table.reshape(n, -1, width)


def _padded(offsets: IntArray, rows: IntArray, width: int, padding: int) -> IntArray:
    """Return the positions of the entries of some rows, padded to the same width."""
    table = offsets[rows][:, None] + np.arange(width)
    return np.where(table < offsets[rows + 1][:, None], table, padding)
