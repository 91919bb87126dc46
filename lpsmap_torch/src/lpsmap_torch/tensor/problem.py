"""A part as batches of projections, and the conversion of numbers between part and batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import Part
from lpsmap_torch.tensor.batch import Batch, moved
from lpsmap_torch.tensor.batches import batches_of
from lpsmap_torch.tensor.memory import batch_bytes
from lpsmap_torch.tensor.oracle_batch import OracleBatch, oracle_batches
from lpsmap_torch.tensor.served import constrained_components, oracle_components

__all__ = ["TensorProblem", "problem_of"]


class TensorProblem:
    """The components of a part that the engine serves, in batches on a device.

    The numbers of a part are those of its variables, then of its additionals. Batches address two
    more: one for auxiliary numbers, and one for padding.

    Parameters
    ----------
    batches
        The batches.
    position
        For each number, its position in the concatenated, flat batches; their total size for
        numbers outside all batches. None if all numbers are in one batch, in their order.
    """

    def __init__(self, batches: Sequence[Batch | OracleBatch], position: Tensor | None) -> None:
        self.batches, self._position = batches, position

    def split(self, numbers: Tensor, padding: float) -> list[Tensor]:
        """Return the part's numbers by batches, with a value for padding."""
        if self._position is None:
            (batch,) = self.batches
            return [numbers.reshape(batch.members.columns.shape)]
        ends = numbers.new_zeros(1), numbers.new_full((1,), padding)
        padded = torch.cat([numbers, *ends])
        return [padded[batch.members.columns] for batch in self.batches]

    def joined(self, numbers: Sequence[Tensor], like: Tensor) -> Tensor:
        """Return the part's numbers from those of batches, and zeros for the others."""
        flat = [x.reshape(-1) for x in numbers]
        if self._position is None:
            return flat[0]
        return torch.cat([*flat, like.new_zeros(1)])[self._position]


def problem_of(part: Part, device: torch.device, with_oracles: bool) -> TensorProblem:
    """Return the problem of a part on a device, and cache it.

    Batches fit the memory that is unused when they are made.

    Parameters
    ----------
    part, device
        The part, and the device.
    with_oracles
        Whether the problem has the components of factors with oracles.
    """
    cached, key = part.derived(_cached), (device, with_oracles)
    if key not in cached:
        cached[key] = TensorProblem(*moved(_on_host(part, device, with_oracles), device))
    return cached[key]


def _cached(part: Part) -> dict[tuple[torch.device, bool], TensorProblem]:
    return {}


def _on_host(
    part: Part, device: torch.device, with_oracles: bool
) -> tuple[tuple[Batch | OracleBatch, ...], Tensor | None]:
    """Return the batches and the positions of a problem for a device."""
    batches: list[Batch | OracleBatch] = [*batches_of(part, part.derived(constrained_components))]
    if with_oracles:
        served = part.derived(oracle_components)
        batches += oracle_batches(part, served, batch_bytes(device))
    n, position = part.n_variables + part.n_additionals, 0
    positions = np.full(n + 2, sum(batch.members.columns.numel() for batch in batches))
    for batch in batches:
        flat = batch.members.columns.numpy().reshape(-1)
        positions[flat] = np.arange(position, position + len(flat))
        position += len(flat)
    in_order = len(batches) == 1 and position == n and np.array_equal(positions[:n], np.arange(n))
    return tuple(batches), None if in_order else torch.from_numpy(positions[:n])
