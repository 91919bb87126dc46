"""A part as batches of projections: numbers go from its variables to batches, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import Part
from lpsmap_torch.tensor.batches import Batch, batches_of
from lpsmap_torch.tensor.rows import Rows, rows_of, served_components

__all__ = ["TensorProblem", "problem_of"]


class TensorProblem:
    """The components of a part that the engine serves, in batches on a device.

    Parameters
    ----------
    rows
        The constraints.
    batches
        The batches.
    position
        (n_variables,) where each variable lies in the batches, one after the other and flat; behind
        all of them if in none.
    """

    def __init__(self, rows: Rows, batches: Sequence[Batch], position: Tensor) -> None:
        self.rows, self.batches, self._position = rows, batches, position

    def to(self, device: torch.device) -> TensorProblem:
        """Return the problem on a device."""
        batches = [batch.to(device) for batch in self.batches]
        return TensorProblem(self.rows, batches, self._position.to(device))

    def split(self, numbers: Tensor, padding: float) -> list[Tensor]:
        """Return numbers of the part's variables by batches, with a number for what pads them."""
        padded = torch.cat([numbers, numbers.new_full((1,), padding)])
        return [padded[batch.variables] for batch in self.batches]

    def joined(self, numbers: Sequence[Tensor], like: Tensor) -> Tensor:
        """Return the numbers of the part's variables; zeros, `like` a tensor, for those in none."""
        flat = [x.reshape(-1) for x in numbers]
        return torch.cat([*flat, like.new_zeros(1)])[self._position]


def problem_of(part: Part, device: torch.device) -> TensorProblem:
    """Return the problem of a part on a device; it is made once."""
    known = part.derived(_by_device)
    if device not in known:
        known[device] = part.derived(_on_host).to(device)
    return known[device]


def _by_device(part: Part) -> dict[torch.device, TensorProblem]:
    return {}


def _on_host(part: Part) -> TensorProblem:
    rows = part.derived(rows_of)
    batches = list(batches_of(part, rows, part.derived(served_components)))
    n, position = part.n_variables, 0
    positions = np.full(n + 1, sum(batch.variables.numel() for batch in batches))
    for batch in batches:
        flat = batch.variables.numpy().reshape(-1)
        positions[flat] = np.arange(position, position + len(flat))
        position += len(flat)
    return TensorProblem(rows, batches, torch.from_numpy(positions[:n]))
