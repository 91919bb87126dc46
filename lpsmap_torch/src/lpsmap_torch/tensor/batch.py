"""A batch of components of similar size: their linear constraints, as dense matrices."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from lpsmap_core.api import IntArray, cached_property
from lpsmap_torch.tensor.equations import Equations

Moved = TypeVar("Moved")


def moved(value: Moved, device: torch.device) -> Moved:
    """Return a tensor, a tuple or a dataclass with all its tensors on a device."""
    found: Any = value
    if isinstance(value, Tensor):
        found = value.to(device)
    elif isinstance(value, tuple):
        found = tuple(moved(x, device) for x in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        found = dataclasses.replace(value, **{x: moved(getattr(value, x), device) for x in names})
    return cast(Moved, found)


@dataclasses.dataclass(frozen=True)
class Members:
    """The components of a batch, and where their numbers are in the part."""

    components: IntArray
    """(n,) numbers of the components in the part."""
    columns: Tensor
    """(n, n_columns) numbers of their columns among the part's numbers; see `TensorProblem`."""


class Entries(NamedTuple):
    """Entries of (n, n_rows, n_columns) matrices, padded with zeros; n may be 1."""

    row_places: Tensor
    """(n, k, n_rows) the columns of each row's entries."""
    row_values: Tensor
    column_places: Tensor
    """(n, j, n_columns) the rows of each column's entries."""
    column_values: Tensor


def _by_line(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return places and values of the nonzero entries of rows."""
    is_entry = matrix != 0.0
    width = max(int(is_entry.sum(-1).max()), 1)
    places = torch.argsort((~is_entry).to(torch.int8), dim=-1, stable=True)[..., :width]
    values = torch.gather(matrix, -1, places)
    return places.to(torch.int32).mT.contiguous(), values.mT.contiguous()


@dataclasses.dataclass(frozen=True)
class Batch:
    """The constraints ``low <= A x <= high`` and ``0 <= x <= 1`` of some components, in tensors.

    Components are padded to equal size with forbidden numbers and with rows without bounds.
    """

    members: Members
    low: Tensor
    """(n, n_rows)"""
    high: Tensor
    linear: Tensor | None
    """(n or 1, n_x) flags of the numbers without a quadratic term: additionals; None
    if there are none."""
    matrix: Tensor
    """(n, n_rows, n_x) A; or (1, n_rows, n_x) if it is the same for all."""
    products: Tensor | None
    """(n_x, n_rows ** 2) outer products of the columns of a shared matrix, or None."""

    @cached_property
    def entries(self) -> Entries:
        """The nonzero entries of the matrices."""
        return Entries(*_by_line(self.matrix), *_by_line(self.matrix.mT))

    def taken(self, rows: Tensor) -> Batch:
        """Return the constraints of some components, for a solve alone: without their members."""
        matrix = self.matrix if len(self.matrix) == 1 else self.matrix[rows]
        return dataclasses.replace(self, low=self.low[rows], high=self.high[rows], matrix=matrix)

    def sums(self, x: Tensor) -> Tensor:
        """Return A x."""
        return _times(self.matrix.mT, x)

    def pull(self, y: Tensor) -> Tensor:
        """Return A' y for multipliers `y` of the rows."""
        return _times(self.matrix, y)

    def equations(self, d: Tensor, diagonal: Tensor | None, tight: Tensor | None) -> Equations:
        """Return the equations with the matrix ``A diag(d) A' + diag(diagonal)``.

        Only rows that are `tight` take part, and the others become zero; None for all.
        """
        if self.products is not None:
            n_rows = self.matrix.shape[-2]
            matrix = (d @ self.products).reshape(*d.shape[:-1], n_rows, n_rows)
        else:
            matrix = (self.matrix * d.unsqueeze(-2)) @ self.matrix.mT
        if tight is not None:
            both = tight.unsqueeze(-1) & tight.unsqueeze(-2)
            matrix = torch.where(both, matrix, 0.0)
        return Equations(matrix if diagonal is None else matrix + torch.diag_embed(diagonal))


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    """Return the product of every instance's row vector with its matrix."""
    if len(matrix) == 1:
        return x @ matrix[0]
    return (x.unsqueeze(-2) @ matrix).squeeze(-2)
