"""Validation of numbers that several functions take."""

from __future__ import annotations

import math

from lpsmap_core.api import checked_number


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
