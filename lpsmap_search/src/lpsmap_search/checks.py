"""Validation of numbers that several functions take."""

from __future__ import annotations

import math

import numpy as np

from lpsmap_core.api import FloatArray, checked_number, real_numbers
from lpsmap_search.count_model import CountModel


def checked_nonnegative(name: str, value: float) -> float:
    """Return a validated finite number of at least 0.

    Raises
    ------
    TypeError
        If it is not a number.
    ValueError
        If it is negative, NaN or infinite.
    """
    expected = "a finite number of at least 0"
    return checked_number(name, value, expected, lambda x: 0.0 <= x < math.inf)


def checked_positive(name: str, value: float) -> float:
    """Return a validated finite positive number.

    Raises
    ------
    TypeError
        If it is not a number.
    ValueError
        If it is not positive, NaN or infinite.
    """
    return checked_number(name, value, "a finite number above 0", lambda x: 0.0 < x < math.inf)


def checked_parameters(model: CountModel, parameters: FloatArray) -> FloatArray:
    """Return validated initial parameters of a model, which need not be normalised.

    Raises
    ------
    TypeError
        If they are not real numbers.
    ValueError
        If they are not of shape (M,), or one is negative, NaN or infinite.
    """
    numbers = real_numbers("parameters", parameters).astype(np.float64)
    n = model.n_parameters
    if numbers.shape != (n,):
        raise ValueError(
            f"parameters has shape {numbers.shape}; expected ({n},), a number for each parameter "
            "of the model."
        )
    if not (np.isfinite(numbers).all() and (numbers >= 0.0).all()):
        raise ValueError(
            "parameters has a negative, infinite or NaN entry; expected 0 or more. Use np.exp for "
            "logarithms."
        )
    return numbers


def checked_time(seconds: float | None) -> float | None:
    """Return a validated time limit in seconds.

    Raises
    ------
    TypeError
        If it is neither a number nor None.
    ValueError
        If it is negative, NaN or infinite.
    """
    return None if seconds is None else checked_nonnegative("max_time", seconds)
