"""Batches of components that the rows of a matrix describe: dense, or sparse if they are large."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lpsmap_torch.tensor.batch import Batch
from lpsmap_torch.tensor.entries import Entries, entries_of
from lpsmap_torch.tensor.equations import ConjugateGradients, Dense, Equations
from lpsmap_torch.tensor.forced import forced_numbers

__all__ = ["DenseBatch", "SparseBatch"]


@dataclass(frozen=True)
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

    def presolved(self, open_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ``low, high, open, fixed`` after forced numbers are fixed."""
        raises, lowers = self.matrix.clamp(min=0.0), self.matrix.clamp(max=0.0)
        return forced_numbers(
            (lambda x: _times(raises.mT, x), lambda x: _times(lowers.mT, x)),
            (lambda y: _times(raises, y), lambda y: _times(lowers, y)),
            (self.low, self.high),
            open_,
        )


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    """Return the product of every instance's row vector with its matrix."""
    if len(matrix) == 1:
        return x @ matrix[0]
    return (x.unsqueeze(-2) @ matrix).squeeze(-2)


@dataclass(frozen=True)
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

    def presolved(self, open_: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ``low, high, open, fixed`` after forced numbers are fixed."""

        def part(index: Tensor, numbers: Tensor) -> Callable[[Tensor], Tensor]:
            return lambda x: _gathered(x, index, numbers)

        return forced_numbers(
            (
                part(self.column, self.of_row.clamp(min=0.0)),
                part(self.column, self.of_row.clamp(max=0.0)),
            ),
            (
                part(self.row, self.of_column.clamp(min=0.0)),
                part(self.row, self.of_column.clamp(max=0.0)),
            ),
            (self.low, self.high),
            open_,
        )


def _gathered(x: Tensor, index: Tensor, coefficient: Tensor) -> Tensor:
    """Return sums of the entries of `x` at some positions, times coefficients."""
    picked = torch.gather(x, -1, index.flatten(-2)).reshape(index.shape)
    return (picked * coefficient).sum(-1)
