"""A part as batches of projections, and the conversion of values between part and batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lpsmap_core.api import Part
from lpsmap_torch.tensor.batches import Batch, batches_of
from lpsmap_torch.tensor.constraint_rows import (
    ConstraintRows,
    constraint_rows_of,
    served_components,
)

__all__ = ["TensorProblem", "problem_of"]


class TensorProblem:
    """The components of a part that the engine serves, in batches on a device.

    Parameters
    ----------
    constraints
        The rows of the components' linear constraints.
    batches
        The batches.
    position
        (n_variables,) position of each variable in the concatenated, flat batches; their total size
        for variables outside all batches.
    """

    def __init__(
        self, constraints: ConstraintRows, batches: Sequence[Batch], position: Tensor
    ) -> None:
        self.constraints, self.batches, self._position = constraints, batches, position

    def to(self, device: torch.device) -> TensorProblem:
        """Return the problem on a device."""
        batches = [batch.to(device) for batch in self.batches]
        return TensorProblem(self.constraints, batches, self._position.to(device))

    def split(self, numbers: Tensor, padding: float) -> list[Tensor]:
        """Return values of the part's variables by batches, with a value for padding."""
        padded = torch.cat([numbers, numbers.new_full((1,), padding)])
        return [padded[batch.variables] for batch in self.batches]

    def joined(self, numbers: Sequence[Tensor], like: Tensor) -> Tensor:
        """Return values of the part's variables from those of batches, and zeros for the others."""
        flat = [x.reshape(-1) for x in numbers]
        return torch.cat([*flat, like.new_zeros(1)])[self._position]


def problem_of(part: Part, device: torch.device) -> TensorProblem:
    """Return the problem of a part on a device, and cache it."""
    cached = part.derived(_by_device)
    if device not in cached:
        cached[device] = part.derived(_on_host).to(device)
    return cached[device]


def _by_device(part: Part) -> dict[torch.device, TensorProblem]:
    return {}


def _on_host(part: Part) -> TensorProblem:
    constraints = part.derived(constraint_rows_of)
    batches = list(batches_of(part, constraints, part.derived(served_components)))
    n, position = part.n_variables, 0
    positions = np.full(n + 1, sum(batch.variables.numel() for batch in batches))
    for batch in batches:
        flat = batch.variables.numpy().reshape(-1)
        positions[flat] = np.arange(position, position + len(flat))
        position += len(flat)
    return TensorProblem(constraints, batches, torch.from_numpy(positions[:n]))
