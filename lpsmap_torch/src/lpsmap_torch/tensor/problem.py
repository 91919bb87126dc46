"""A part as batches of projections, and the conversion of numbers between part and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import BoolArray, Part, offsets_of
from lpsmap_torch.tensor.batch import Batch, Members, moved
from lpsmap_torch.tensor.constraint_rows import constraint_rows_of, matrices_of
from lpsmap_torch.tensor.oracle_batch import OracleBatch, oracle_batches
from lpsmap_torch.tensor.served import constrained_components, oracle_components

MAX_ENTRIES = 2**26
"""Maximum number of entries of all matrices of a batch: half a gigabyte of numbers."""

MAX_PRODUCTS = 2**23
"""Maximum number of entries of a shared table of the products of a matrix's columns."""

SHARE = 0.5
"""Share of a GPU's unused memory for a batch. The rest is for solutions of other batches, and for
what a network needs before the next solve of the same layout."""

HOST_BYTES = 2**32
"""The same on other devices. There a launch costs little, so that a fixed number is best: with the
same batches, runs have the same bits."""


class TensorProblem:
    """The components of a part that the engine serves, in batches on a device.

    The numbers of a part are those of its variables, then of its additionals. Batches address
    one more, of padding. Each number has a position in the concatenated, flat batches, or after
    them if it is in none.
    """

    def __init__(self, batches: Sequence[Batch | OracleBatch], position: Tensor) -> None:
        self.batches, self._position = batches, position

    def split(self, numbers: Tensor, padding: float) -> list[Tensor]:
        """Return the part's numbers by batches, with a value for padding."""
        padded = torch.cat([numbers, numbers.new_full((1,), padding)])
        return [padded[batch.members.columns] for batch in self.batches]

    def joined(self, numbers: Sequence[Tensor], like: Tensor) -> Tensor:
        """Return the part's numbers from those of batches, and zeros for the others."""
        return torch.cat([*(x.reshape(-1) for x in numbers), like.new_zeros(1)])[self._position]


def problem_of(part: Part, device: torch.device, with_oracles: bool) -> TensorProblem:
    """Return the problem of a part on a device, and cache it.

    Batches fit the memory that is unused when they are made. With oracles, the problem has the
    components of factors with oracles, too.
    """
    cached, key = part.derived(_cached), (device, with_oracles)
    if key not in cached:
        with torch.inference_mode(False):  # later calls may need gradients
            cached[key] = TensorProblem(*moved(_on_host(part, device, with_oracles), device))
    return cached[key]


def _cached(part: Part) -> dict[tuple[torch.device, bool], TensorProblem]:
    return {}


def _on_host(
    part: Part, device: torch.device, with_oracles: bool
) -> tuple[tuple[Batch | OracleBatch, ...], Tensor]:
    """Return the batches and the positions of a problem for a device."""
    batches: list[Batch | OracleBatch] = [*batches_of(part, part.derived(constrained_components))]
    if with_oracles:
        served = part.derived(oracle_components)
        batches += oracle_batches(part, served, batch_bytes(device))
    n, position = part.n_variables + part.n_additionals, 0
    positions = np.full(n + 1, sum(batch.members.columns.numel() for batch in batches))
    for batch in batches:
        flat = batch.members.columns.numpy().reshape(-1)
        positions[flat] = np.arange(position, position + len(flat))
        position += len(flat)
    return tuple(batches), torch.from_numpy(positions[:n])


def batch_bytes(device: torch.device) -> int:
    """Return how many bytes a batch may take on a device."""
    if device.type != "cuda":
        return HOST_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(SHARE * (free + cached))


def batches_of(part: Part, selected: BoolArray) -> Iterator[Batch]:
    """Yield the batches of the selected components, described by linear constraints, on the host.

    A batch has sizes up to the same power of two, so that there are few batches.
    """
    rows, component = part.derived(constraint_rows_of), part.component_of_numbers
    counts = np.bincount(component, minlength=part.n_components)
    order, offsets = np.argsort(component, kind="stable"), offsets_of(counts)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(offsets[:-1], counts)
    number = np.append(order, len(order))  # the last of padding
    n_rows = np.bincount(rows.component, minlength=part.n_components)
    components = np.flatnonzero(selected)
    has_linear = counts > np.diff(part.first_variable)
    size = np.ceil(np.log2(np.maximum(np.stack([n_rows, counts]), 1)))
    keys = np.vstack([size, has_linear])[:, components]
    _, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    for g in range(group.max(initial=-1) + 1):
        of_group = components[group == g]
        shape = max(int(n_rows[of_group].max()), 1), int(counts[of_group].max())
        n_batches = -(-len(of_group) * shape[0] * shape[1] // MAX_ENTRIES)
        for own in np.array_split(of_group, n_batches):
            table = offsets[own][:, None] + np.arange(shape[1])
            columns = number[np.where(table < offsets[own + 1][:, None], table, -1)]
            matrix, low, high = map(torch.from_numpy, matrices_of(rows, own, place, shape))
            is_linear = columns >= part.n_variables
            linear = torch.from_numpy(is_linear) if is_linear[columns < len(order)].any() else None
            members = Members(own, torch.from_numpy(columns))
            yield Batch(members, low, high, linear, matrix, _products(matrix, len(own)))


def _products(matrix: Tensor, n: int) -> Tensor | None:
    """Return the outer products of the columns of a matrix that `n` components share."""
    if not len(matrix) == 1 < n or matrix.numel() * matrix.shape[1] > MAX_PRODUCTS:
        return None
    outer = torch.einsum("iv,jv->vij", matrix[0], matrix[0])
    return outer.reshape(matrix.shape[2], -1)
