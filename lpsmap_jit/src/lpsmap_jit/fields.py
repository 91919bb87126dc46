"""The fields of a record, defined by the annotations of its named tuple."""

from __future__ import annotations

import functools
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np


class Field(NamedTuple):
    """The dtype of an array field, and its number of axes."""

    dtype: np.dtype[Any]
    ndim: int


@functools.cache
def kinds_of(record: type) -> dict[str, Field | type]:
    """Return the fields of a record by name, in order: arrays, numbers, and other records."""
    hints = get_type_hints(record, include_extras=True)
    return {name: _kind(hint) for name, hint in hints.items()}


@functools.cache
def n_words(kind: Field | type) -> int:
    """Return the number of words of a field: an array has an address and a shape."""
    if isinstance(kind, Field):
        return 1 + kind.ndim
    return 1 if kind in (int, float) else sum(map(n_words, kinds_of(kind).values()))


def _kind(hint: Any) -> Field | type:
    if isinstance(hint, type):
        return hint
    array, ndim = get_args(hint) if get_origin(hint) is Annotated else (hint, 1)
    number = get_args(array)[-1]  # NDArray is an alias with a name of its own since NumPy 2.5
    if get_origin(number) is np.dtype:
        (number,) = get_args(number)
    return Field(np.dtype(number), ndim)
