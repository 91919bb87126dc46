"""Components of similar size as batches of constraints: dense, or sparse if they are large."""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from lpsmap_core.api import IntArray
from lpsmap_torch.tensor.equations import ConjugateGradients, Dense, Equations
from lpsmap_torch.tensor.presolve import forced_numbers

__all__ = ["Batch", "DenseBatch", "Members", "SparseBatch", "moved"]

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
    rows: IntArray
    """(n, n_rows) numbers of their rows in `ConstraintRows`; -1 for padding."""


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
    def halves(self) -> tuple[Batch, Batch]:
        """Return the constraints with the positive, and with the negative entries of A alone."""

    def presolved(self, open_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ``low, high, open, fixed`` after forced numbers are fixed.

        Parameters
        ----------
        open_
            (n, n_x) flags of the numbers that are not fixed to zero.
        """
        positive, negative = self.halves()
        sums, pulls = (positive.sums, negative.sums), (positive.pull, negative.pull)
        return forced_numbers(sums, pulls, (self.low, self.high), open_)


# -------------------------------------------------------------------- dense matrices


class Entries(NamedTuple):
    """Entries of (n, n_rows, n_columns) matrices, padded with zeros; n may be 1."""

    row_places: Tensor
    """(n, k, n_rows) the columns of each row's entries."""
    row_values: Tensor
    column_places: Tensor
    """(n, j, n_columns) the rows of each column's entries."""
    column_values: Tensor


def entries_of(matrix: Tensor) -> Entries:
    """Return the entries of matrices."""
    return Entries(*_by_line(matrix), *_by_line(matrix.mT))


def _by_line(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return places and values of the nonzero entries of rows."""
    is_entry = matrix != 0.0
    width = max(int(is_entry.sum(-1).max()), 1)
    places = torch.argsort((~is_entry).to(torch.int8), dim=-1, stable=True)[..., :width]
    values = torch.gather(matrix, -1, places)
    return places.to(torch.int32).mT.contiguous(), values.mT.contiguous()


@dataclasses.dataclass(frozen=True)
class DenseBatch(Batch):
    """Components with dense matrices."""

    matrix: Tensor
    """(n, n_rows, n_x) A; or (1, n_rows, n_x) if it is the same for all."""
    products: Tensor | None
    """(n_x, n_rows ** 2) outer products of the columns of a shared matrix, or None."""

    @functools.cached_property
    def entries(self) -> Entries:
        """The nonzero entries of the matrices."""
        return entries_of(self.matrix)

    def taken(self, rows: Tensor) -> DenseBatch:
        """Return the constraints of some components, for a solve alone: without their members."""
        matrix = self.matrix if len(self.matrix) == 1 else self.matrix[rows]
        return dataclasses.replace(self, low=self.low[rows], high=self.high[rows], matrix=matrix)

    def sums(self, x: Tensor) -> Tensor:
        """Return A x."""
        return _times(self.matrix.mT, x)

    def pull(self, y: Tensor) -> Tensor:
        """Return A' y for multipliers `y` of the rows."""
        return _times(self.matrix, y)

    def equations(self, d: Tensor, diagonal: Tensor, tight: Tensor | None = None) -> Equations:
        """Return the equations with the matrix ``A diag(d) A' + diag(diagonal)``."""
        if self.products is not None:
            n_rows = self.matrix.shape[-2]
            matrix = (d @ self.products).reshape(*d.shape[:-1], n_rows, n_rows)
        else:
            matrix = (self.matrix * d.unsqueeze(-2)) @ self.matrix.mT
        if tight is not None:
            both = tight.unsqueeze(-1) & tight.unsqueeze(-2)
            matrix = torch.where(both, matrix, 0.0)
        return Dense(matrix + torch.diag_embed(diagonal))

    def halves(self) -> tuple[DenseBatch, DenseBatch]:
        """Return the constraints with the positive, and with the negative entries of A alone."""
        positive, negative = self.matrix.clamp(min=0.0), self.matrix.clamp(max=0.0)
        return (
            dataclasses.replace(self, matrix=positive),
            dataclasses.replace(self, matrix=negative),
        )


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    """Return the product of every instance's row vector with its matrix."""
    if len(matrix) == 1:
        return x @ matrix[0]
    return (x.unsqueeze(-2) @ matrix).squeeze(-2)


# -------------------------------------------------------------------- sparse matrices


@dataclasses.dataclass(frozen=True)
class SparseBatch(Batch):
    """Components with sparse matrices, whose equations are solved by conjugate gradients.

    The entries are stored by rows and by columns, padded with coefficients of zero, so that all
    sums are taken in a fixed order.
    """

    column: Tensor
    """(n, n_rows, k) the columns of each row's entries."""
    of_row: Tensor
    """(n, n_rows, k) their coefficients."""
    row: Tensor
    """(n, n_x, j) the rows of each column's entries."""
    of_column: Tensor
    """(n, n_x, j) their coefficients."""

    def sums(self, x: Tensor) -> Tensor:
        """Return A x."""
        return _gathered(x, self.column, self.of_row)

    def pull(self, y: Tensor) -> Tensor:
        """Return A' y for multipliers `y` of the rows."""
        return _gathered(y, self.row, self.of_column)

    def equations(self, d: Tensor, diagonal: Tensor, tight: Tensor | None = None) -> Equations:
        """Return the equations with the matrix ``A diag(d) A' + diag(diagonal)``."""
        taken = torch.ones_like(diagonal) if tight is None else tight.to(diagonal.dtype)

        def times(y: Tensor) -> Tensor:
            return taken * self.sums(d * self.pull(taken * y)) + diagonal * y

        own = taken * _gathered(d, self.column, self.of_row.square()) + diagonal
        return ConjugateGradients(times, own)

    def halves(self) -> tuple[SparseBatch, SparseBatch]:
        """Return the constraints with the positive, and with the negative entries of A alone."""
        by_row = self.of_row.clamp(min=0.0), self.of_row.clamp(max=0.0)
        by_column = self.of_column.clamp(min=0.0), self.of_column.clamp(max=0.0)
        return (
            dataclasses.replace(self, of_row=by_row[0], of_column=by_column[0]),
            dataclasses.replace(self, of_row=by_row[1], of_column=by_column[1]),
        )


def _gathered(x: Tensor, index: Tensor, coefficient: Tensor) -> Tensor:
    """Return sums of the entries of `x` at some positions, times coefficients."""
    picked = torch.gather(x, -1, index.flatten(-2)).reshape(index.shape)
    return (picked * coefficient).sum(-1)
