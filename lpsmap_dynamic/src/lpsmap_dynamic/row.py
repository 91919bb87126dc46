"""The description of one factor of a declaration, without its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import IntArray

__all__ = ["Row", "different_rows"]


@dataclass(frozen=True)
class Row:
    """All that a factor's structures can depend on, hashable; ``row["budget"]`` is a row parameter.

    Attributes
    ----------
    event_shape
        The shape of the factor's slots, regardless of `lengths` and `mask`.
    n_additionals
        The number of its additionals, including unused ones.
    parameters
        Its `row_parameters` by name.
    integer_bytes
        Its `integer_parameter`, see `integers`.
    """

    event_shape: tuple[int, ...]
    n_additionals: int = 0
    parameters: tuple[tuple[str, float], ...] = ()
    integer_bytes: bytes = b""

    @classmethod
    def of_view(cls, view: Any) -> Row:
        """Return the row of a `view` returned by `Factor.row`."""
        name = view.integer_parameter
        return cls(
            view.event_shape,
            view.n_additionals,
            tuple((key, getattr(view, key)) for key in view.row_parameters),
            b"" if name is None else getattr(view, name).tobytes(),
        )

    @property
    def integers(self) -> IntArray:
        """Its `integer_parameter`, flat."""
        return np.frombuffer(self.integer_bytes, dtype=np.int64)

    def __getitem__(self, name: str) -> float:
        parameters = dict(self.parameters)
        if name not in parameters:
            known = ", ".join(map(repr, parameters)) or "none, as the type declares none"
            raise KeyError(f"row[{name!r}] is no row parameter; expected {known}.")
        return parameters[name]


def different_rows(factor: Factor) -> tuple[list[Row], IntArray]:
    """Return the distinct rows of a declaration, and the index of each factor's row."""
    given = None if factor.integer_parameter is None else getattr(factor, factor.integer_parameter)
    columns = [np.diff(factor.offsets), *(getattr(factor, name) for name in factor.row_parameters)]
    if factor.lengths is not None:
        columns += list(factor.lengths.T)
    if isinstance(given, tuple):
        numbers: dict[bytes, int] = {}
        columns.append([numbers.setdefault(x.tobytes(), len(numbers)) for x in given])
    table = np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    rows = [Row.of_view(factor.row(int(i))) for i in first]
    return rows, which.reshape(-1).astype(np.int64)
