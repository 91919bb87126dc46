"""Components of similar size as batches of constraints."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import BoolArray, Part, offsets_of
from lpsmap_torch.tensor.batch import Batch, DenseBatch, Members, SparseBatch
from lpsmap_torch.tensor.component_rows import ComponentRows
from lpsmap_torch.tensor.constraint_rows import constraint_rows_of

__all__ = ["batches_of"]

MAX_ENTRIES = 2**26
"""Maximum number of entries of all matrices of a batch: half a gigabyte of numbers."""

MAX_PRODUCTS = 2**23
"""Maximum number of entries of a shared table of the products of a matrix's columns."""

MAX_DENSE_ROWS, MAX_DENSE_ENTRIES = 1024, 2**24
"""Maximum number of rows of a component, and of entries of its matrix, to be factorised."""


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
    order, offsets = np.argsort(component, kind="stable"), offsets_of(counts)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(offsets[:-1], counts)
    auxiliary = part.n_variables + part.n_additionals
    number = np.append(np.minimum(order, auxiliary), auxiliary + 1)  # the last of padding
    n_rows = np.bincount(rows.component, minlength=part.n_components)
    components = np.flatnonzero(selected)
    has_linear = counts > np.diff(part.first_variable)
    size = np.ceil(np.log2(np.maximum(np.stack([n_rows, counts]), 1)))
    keys = np.vstack([size, has_linear])[:, components]
    _, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    for g in range(group.max(initial=-1) + 1):
        members = components[group == g]
        shape = max(int(n_rows[members].max()), 1), int(counts[members].max())
        is_dense = shape[0] <= MAX_DENSE_ROWS and shape[0] * shape[1] <= MAX_DENSE_ENTRIES
        entries = shape[0] * shape[1] if is_dense else 64 * sum(shape)
        for own in np.array_split(members, -(-len(members) * entries // MAX_ENTRIES)):
            table = offsets[own][:, None] + np.arange(shape[1])
            columns = number[np.where(table < offsets[own + 1][:, None], table, -1)]
            of_batch = ComponentRows(rows, own, place, shape)
            is_linear = columns >= part.n_variables
            yield _batch(
                Members(own, torch.from_numpy(columns), of_batch.numbers),
                of_batch,
                torch.from_numpy(is_linear) if is_linear[columns <= auxiliary].any() else None,
                is_dense,
            )


def _batch(members: Members, rows: ComponentRows, linear: Tensor | None, is_dense: bool) -> Batch:
    """Return the batch of some components with given rows."""
    bounds = torch.from_numpy(rows.low), torch.from_numpy(rows.high)
    if not is_dense:
        tables = (torch.from_numpy(x) for x in (*rows.by(0), *rows.by(1)))
        return SparseBatch(members, *bounds, linear, *tables)
    matrix, products = rows.matrices(), None
    if len(matrix) == 1 < len(rows.low) and matrix[0].size * matrix.shape[1] <= MAX_PRODUCTS:
        outer = np.einsum("iv,jv->vij", matrix[0], matrix[0])
        products = torch.from_numpy(outer.reshape(matrix.shape[2], -1))
    return DenseBatch(members, *bounds, linear, torch.from_numpy(matrix), products)
