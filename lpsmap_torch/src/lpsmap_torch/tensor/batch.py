"""Components of similar size as a batch of constraints, whatever the form of their matrices."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, TypeVar

import torch
from torch import Tensor

from lpsmap_core.api import IntArray
from lpsmap_torch.tensor.equations import Equations

__all__ = ["Batch", "Members"]

Moved = TypeVar("Moved", bound="Batch")


@dataclasses.dataclass(frozen=True)
class Members:
    """The components of a batch, and where their numbers are in the part."""

    components: IntArray
    """(n,) numbers of the components in the part."""
    columns: Tensor
    """(n, n_columns) numbers of their columns among the part's numbers; see `TensorProblem`."""
    rows: IntArray
    """(n, n_rows) numbers of their rows in `ConstraintRows`; -1 for padding and chains."""


@dataclasses.dataclass(frozen=True)
class Batch(abc.ABC):
    """The constraints ``low <= A x <= high`` and ``0 <= x <= 1`` of some components, in tensors.

    Components are padded to equal size with forbidden numbers and with rows without bounds.
    """

    members: Members
    low: Tensor
    """(n, n_rows)"""
    high: Tensor
    linear: Tensor | None
    """(n or 1, n_x) flags of the numbers without a quadratic term: additionals and auxiliary
    numbers; None if there are none."""

    @abc.abstractmethod
    def sums(self, x: Tensor) -> Tensor:
        """Return A x."""

    @abc.abstractmethod
    def pull(self, y: Tensor) -> Tensor:
        """Return A' y for multipliers `y` of the rows."""

    @abc.abstractmethod
    def equations(self, d: Tensor, diagonal: Tensor, tight: Tensor | None = None) -> Equations:
        """Return the equations with the matrix ``A diag(d) A' + diag(diagonal)``.

        Parameters
        ----------
        d, diagonal
            The diagonals.
        tight
            Flags of the rows to take part; the others become zero. None for all.
        """

    @abc.abstractmethod
    def presolved(self, open_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ``low, high, open, fixed`` after forced numbers are fixed.

        Parameters
        ----------
        open_
            (n, n_x) flags of the numbers that are not fixed to zero.
        """

    def to(self: Moved, device: torch.device) -> Moved:
        """Return the batch on a device."""
        columns = self.members.columns.to(device)
        moved: dict[str, Any] = {
            field.name: value.to(device)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        members = dataclasses.replace(self.members, columns=columns)
        return dataclasses.replace(self, members=members, **moved)
