"""Components of similar size as a batch of dense constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, ranges
from lpsmap_torch.tensor.rows import Rows

__all__ = ["Batch", "batches_of"]

MOST_ENTRIES = 2**26
"""Entries of all matrices of a batch: half a gigabyte of numbers."""

MOST_PRODUCTS = 2**23
"""Entries of a table of the products of a matrix's columns, which all components share."""


class Batch(NamedTuple):
    """The constraints ``low <= A mu <= high`` of some components, in tensors on a device.

    What pads a component to the size of the others is forbidden, and a row without bounds.
    """

    components: IntArray
    """(n,) their numbers in the part."""
    variables: Tensor
    """(n, n_variables) their variables' numbers in the part; the part's size for padding."""
    rows: IntArray
    """(n, n_rows) their rows' numbers in `Rows`; -1 for padding."""
    matrix: Tensor
    """(n, n_rows, n_variables) A; of one matrix only, if it is the same for all."""
    low: Tensor
    high: Tensor
    products: Tensor | None
    """(n_variables, n_rows ** 2) the outer products of the columns of the same matrix."""

    def sums(self, u: Tensor) -> Tensor:
        """Return A u for numbers `u` of the variables."""
        return _times(self.matrix.mT, u)

    def pull(self, y: Tensor) -> Tensor:
        """Return A' y for numbers `y` of the rows."""
        return _times(self.matrix, y)

    def gram(self, d: Tensor) -> Tensor:
        """Return A diag(d) A'."""
        if self.products is not None:
            n_rows = self.matrix.shape[-2]
            return (d @ self.products).reshape(*d.shape[:-1], n_rows, n_rows)
        return (self.matrix * d.unsqueeze(-2)) @ self.matrix.mT

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        tensors = self.variables, self.matrix, self.low, self.high
        variables, matrix, low, high = (tensor.to(device) for tensor in tensors)
        products = None if self.products is None else self.products.to(device)
        return self._replace(
            variables=variables, matrix=matrix, low=low, high=high, products=products
        )


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    """Return the product of every instance's row of numbers with its matrix from the right."""
    if len(matrix) == 1:
        return x @ matrix[0]
    return (x.unsqueeze(-2) @ matrix).squeeze(-2)


def batches_of(part: Part, rows: Rows, chosen: BoolArray) -> Iterator[Batch]:
    """Yield the batches of chosen components, on the host.

    Sizes are padded within a power of two, so that there are few batches.

    Parameters
    ----------
    part
        The part.
    rows
        The rows of the components.
    chosen
        Which components.
    """
    n_rows = np.bincount(rows.component, minlength=part.n_components)
    n_variables = np.diff(part.first_variable)
    components = np.flatnonzero(chosen)
    size = np.stack([n_rows, n_variables])[:, components]
    _, group = np.unique(np.ceil(np.log2(np.maximum(size, 1))), axis=1, return_inverse=True)
    group = group.reshape(-1)
    for number in range(group.max(initial=-1) + 1):
        mine = components[group == number]
        shape = max(int(n_rows[mine].max()), 1), int(n_variables[mine].max())
        for some in np.array_split(mine, -(-len(mine) * shape[0] * shape[1] // MOST_ENTRIES)):
            yield _batch(part, rows, some, shape)


def _batch(part: Part, rows: Rows, components: IntArray, shape: tuple[int, int]) -> Batch:
    n, (n_rows, n_variables) = len(components), shape
    first_row = np.searchsorted(rows.component, np.arange(part.n_components + 1))
    mine = ranges(first_row, components)
    instance = np.repeat(np.arange(n), np.diff(first_row)[components])
    place = mine - first_row[components][instance]
    variables = _padded(part.first_variable, components, n_variables, part.n_variables)
    low, high = np.full((n, n_rows), -np.inf), np.full((n, n_rows), np.inf)
    low[instance, place], high[instance, place] = rows.low[mine], rows.high[mine]
    matrix = _matrices(part, rows, components, (mine, instance, place), shape)
    products = None
    if len(matrix) == 1 < n and n_variables * n_rows**2 <= MOST_PRODUCTS:
        products = np.einsum("iv,jv->vij", matrix[0], matrix[0]).reshape(n_variables, -1)
    return Batch(
        components,
        torch.from_numpy(variables),
        _padded(first_row, components, n_rows, -1),
        torch.from_numpy(matrix),
        torch.from_numpy(low),
        torch.from_numpy(high),
        None if products is None else torch.from_numpy(products),
    )


def _padded(offsets: IntArray, rows: IntArray, width: int, padding: int) -> IntArray:
    """Return the positions of the entries of some rows, a row of the same width for each."""
    table = offsets[rows][:, None] + np.arange(width)
    return np.where(table < offsets[rows + 1][:, None], table, padding)


def _matrices(
    part: Part,
    rows: Rows,
    components: IntArray,
    chosen: tuple[IntArray, IntArray, IntArray],
    shape: tuple[int, int],
) -> FloatArray:
    """Return the components' matrices, or one for all if they are equal."""
    mine, instance, place = chosen
    n = len(components)
    entries = ranges(rows.offsets, mine)
    of_row = np.repeat(np.arange(len(mine)), np.diff(rows.offsets)[mine])
    variable = rows.variable[entries] - part.first_variable[components][instance[of_row]]
    local = np.stack([place[of_row], variable])
    coefficient, counts = rows.coefficient[entries], np.bincount(instance[of_row], minlength=n)
    if n and (counts == counts[0]).all():
        every = local.reshape(2, n, -1), coefficient.reshape(n, -1)
        if (every[0] == every[0][:, :1]).all() and (every[1] == every[1][:1]).all():
            matrix = np.zeros((1, *shape))
            np.add.at(matrix[0], tuple(every[0][:, 0]), every[1][0])
            return matrix
    matrix = np.zeros((n, *shape))
    np.add.at(matrix, (instance[of_row], *local), coefficient)
    return matrix
