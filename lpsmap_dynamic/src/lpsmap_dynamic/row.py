"""The description of one factor of a declaration, without its scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import IntArray, parameters_of, row_view
from lpsmap_dynamic.equal_rows import distinct_rows


@dataclass(frozen=True)
class Row:
    """All that a factor's structures can depend on, hashable; ``row["budget"]`` is a parameter.

    Attributes
    ----------
    event_shape
        The shape of the factor's slots, regardless of `lengths` and `mask`.
    n_additionals
        The number of its additionals, including unused ones.
    parameters
        Parameters of ``self.per_factor`` and ``self.counts`` by name: numbers, or tuples.
    integer_bytes
        Integers of ``self.integers`` as bytes; see `integers`.
    """

    event_shape: tuple[int, ...]
    n_additionals: int = 0
    parameters: tuple[tuple[str, Any], ...] = ()
    integer_bytes: bytes = b""

    @classmethod
    def of_view(cls, view: Any) -> Row:
        """Return the row of a `view` of one factor."""
        registered = parameters_of(view)
        name = registered.integers
        return cls(
            view.event_shape,
            view.n_additionals,
            tuple((key, _hashable(getattr(view, key))) for key in registered.rows),
            b"" if name is None else getattr(view, name).tobytes(),
        )

    @property
    def integers(self) -> IntArray:
        """Its array of integers, flat."""
        return np.frombuffer(self.integer_bytes, dtype=np.int64)

    def __getitem__(self, name: str) -> Any:
        parameters = dict(self.parameters)
        if name not in parameters:
            known = ", ".join(map(repr, parameters)) or "none, as the type registers none"
            raise KeyError(f"row[{name!r}] is no parameter; expected {known}.")
        value = parameters[name]
        return np.array(value) if isinstance(value, tuple) else value


def _hashable(value: Any) -> Any:
    """Return a row's number as it is, and an array of them as nested tuples."""
    return tuple(map(_hashable, value)) if np.ndim(value) else np.asarray(value).item()


def different_rows(factor: Factor) -> tuple[list[Row], IntArray]:
    """Return the distinct rows of a declaration, and the index of each factor's row."""
    registered = parameters_of(factor)
    integers = None if registered.integers is None else getattr(factor, registered.integers)
    columns: list[Any] = [np.diff(factor.offsets)]
    for name, shape in registered.rows.items():
        columns += list(getattr(factor, name).reshape(factor.n_factors, math.prod(shape)).T)
    if factor.lengths is not None:
        columns += list(factor.lengths.T)
    if isinstance(integers, tuple):
        numbers: dict[bytes, int] = {}
        columns.append([numbers.setdefault(x.tobytes(), len(numbers)) for x in integers])
    table = np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
    first, which = distinct_rows(table + 0.0)  # which makes -0.0 equal to 0.0
    rows = [Row.of_view(row_view(factor, int(i))) for i in first]
    return rows, which
