"""The nonzero entries of a batch's matrices, as the kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Entries", "entries_of"]


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
