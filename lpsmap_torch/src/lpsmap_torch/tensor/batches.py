"""Components of similar size as a batch of dense constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, ranges
from lpsmap_torch.tensor.constraint_rows import ConstraintRows

__all__ = ["Batch", "batches_of"]

MOST_ENTRIES = 2**26
"""Maximum number of entries of all matrices of a batch: half a gigabyte of numbers."""

MOST_PRODUCTS = 2**23
"""Maximum number of entries of a shared table of the products of a matrix's columns."""


class Batch(NamedTuple):
    """The constraints ``low <= A mu <= high`` of some components, in tensors on a device.

    Components are padded to equal size with forbidden variables and with rows without bounds.
    """

    components: IntArray
    """(n,) numbers of the components in the part."""
    variables: Tensor
    """(n, n_variables) numbers of their variables in the part; the part's size for padding."""
    rows: IntArray
    """(n, n_rows) numbers of their rows in `ConstraintRows`; -1 for padding."""
    matrix: Tensor
    """(n, n_rows, n_variables) A; or (1, n_rows, n_variables) if it is the same for all."""
    low: Tensor
    high: Tensor
    products: Tensor | None
    """(n_variables, n_rows ** 2) outer products of the columns of a shared matrix, or None."""

    def sums(self, u: Tensor) -> Tensor:
        """Return A u for values `u` of the variables."""
        return _times(self.matrix.mT, u)

    def pull(self, y: Tensor) -> Tensor:
        """Return A' y for multipliers `y` of the rows."""
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
    """Return the product of every instance's row vector with its matrix."""
    if len(matrix) == 1:
        return x @ matrix[0]
    return (x.unsqueeze(-2) @ matrix).squeeze(-2)


def batches_of(part: Part, rows: ConstraintRows, selected: BoolArray) -> Iterator[Batch]:
    """Yield the batches of the selected components, on the host.

    A batch has sizes up to the same power of two, so that there are few batches.

    Parameters
    ----------
    part
        The part.
    rows
        The rows of the components.
    selected
        (n_components,) flags of the components.
    """
    n_rows = np.bincount(rows.component, minlength=part.n_components)
    n_variables = np.diff(part.first_variable)
    components = np.flatnonzero(selected)
    size = np.stack([n_rows, n_variables])[:, components]
    _, group = np.unique(np.ceil(np.log2(np.maximum(size, 1))), axis=1, return_inverse=True)
    group = group.reshape(-1)
    for number in range(group.max(initial=-1) + 1):
        members = components[group == number]
        shape = max(int(n_rows[members].max()), 1), int(n_variables[members].max())
        n_batches = -(-len(members) * shape[0] * shape[1] // MOST_ENTRIES)
        for of_batch in np.array_split(members, n_batches):
            yield _batch(part, rows, of_batch, shape)


def _batch(part: Part, rows: ConstraintRows, components: IntArray, shape: tuple[int, int]) -> Batch:
    n, (n_rows, n_variables) = len(components), shape
    first_row = np.searchsorted(rows.component, np.arange(part.n_components + 1))
    selected = ranges(first_row, components)
    instance = np.repeat(np.arange(n), np.diff(first_row)[components])
    place = selected - first_row[components][instance]
    variables = _padded(part.first_variable, components, n_variables, part.n_variables)
    low, high = np.full((n, n_rows), -np.inf), np.full((n, n_rows), np.inf)
    low[instance, place], high[instance, place] = rows.low[selected], rows.high[selected]
    matrix = _matrices(part, rows, components, (selected, instance, place), shape)
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
    """Return the positions of the entries of some rows, padded to the same width."""
    table = offsets[rows][:, None] + np.arange(width)
    return np.where(table < offsets[rows + 1][:, None], table, padding)


def _matrices(
    part: Part,
    rows: ConstraintRows,
    components: IntArray,
    placement: tuple[IntArray, IntArray, IntArray],
    shape: tuple[int, int],
) -> FloatArray:
    """Return the components' matrices, or one for all if they are equal.

    `placement` has the numbers of the rows, their instances, and their places in the instances.
    """
    selected, instance, place = placement
    n = len(components)
    entries = ranges(rows.offsets, selected)
    of_row = np.repeat(np.arange(len(selected)), np.diff(rows.offsets)[selected])
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
