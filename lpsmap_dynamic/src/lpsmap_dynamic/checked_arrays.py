"""Validation of arrays that methods of Gibbs distributions take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lpsmap_core.api import FloatArray, real_numbers


def checked_additionals(name: str, value: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return numbers for additionals in their shape, of which neighbouring axes may be merged.

    A flat array in C order is one of these, and axes of length 1 do not count. Another shape of the
    same size would assign the numbers to the wrong additionals.

    Raises
    ------
    TypeError
        If they are not real numbers; `name` is their name in errors.
    ValueError
        If their shape is another.
    """
    numbers = real_numbers(name, value)
    size = math.prod(shape)
    merges = set(np.cumprod(numbers.shape).tolist()) <= {1, *np.cumprod(shape).tolist()}
    if numbers.size != size or (size and not merges):
        raise ValueError(
            f"{name} has shape {numbers.shape}; expected {shape}, or the same {size} numbers in a "
            "flat array."
        )
    return numbers.astype(np.float64).reshape(shape)


def checked_tangent(name: str, value: Any, n_variables: int) -> FloatArray:
    """Return a tangent of the scores of all variables of a graph.

    Raises
    ------
    TypeError
        If it does not consist of real numbers; `name` is its name in errors.
    ValueError
        If its shape is not ``(n_variables,)``.
    """
    numbers = real_numbers(name, value)
    if numbers.shape != (n_variables,):
        raise ValueError(
            f"{name} has shape {numbers.shape}; expected ({n_variables},), one number for every "
            "variable of the graph."
        )
    return numbers.astype(np.float64)


def checked_list(name: str, values: list[Any], n_declarations: int) -> list[Any]:
    """Return a list with an entry for every declaration of a graph.

    Raises
    ------
    TypeError
        If it cannot be iterated over; `name` is its name in errors.
    ValueError
        If it has another number of entries.
    """
    if not np.iterable(values):
        raise TypeError(f"{name} is {values!r:.60}; expected a list with an array for each factor.")
    entries = list(values)
    if len(entries) != n_declarations:
        raise ValueError(
            f"{name} has {len(entries)} entries; expected {n_declarations}, one for every "
            "declaration of the graph."
        )
    return entries
