"""Validation of options."""

from __future__ import annotations

import math
import operator

__all__ = ["checked_count", "checked_flag", "checked_number", "checked_positive", "checked_time"]


def checked_count(name: str, value: int) -> int:
    """Validate an integer of at least 1.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If it is less than 1.
    """
    try:
        whole = operator.index(value)
    except TypeError:
        whole = None
    if whole is None or isinstance(value, bool):
        raise TypeError(f"{name}: got {value!r}; expected an integer of at least 1.")
    if whole < 1:
        raise ValueError(f"{name}: got {whole}; expected at least 1.")
    return whole


def checked_flag(name: str, value: bool) -> bool:
    """Validate a boolean.

    Raises
    ------
    TypeError
        If it is not a boolean.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name}: got {value!r}; expected True or False.")
    return value


def checked_number(name: str, value: float) -> float:
    """Validate a finite number of at least 0.

    Raises
    ------
    TypeError
        If it is not a number.
    ValueError
        If it is negative, NaN or infinite.
    """
    value = _number(name, value)
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name}: got {value}; expected a finite number of at least 0.")
    return value


def checked_positive(name: str, value: float) -> float:
    """Validate a finite positive number.

    Raises
    ------
    TypeError
        If it is not a number.
    ValueError
        If it is not positive, NaN or infinite.
    """
    value = _number(name, value)
    if not 0.0 < value < math.inf:
        raise ValueError(f"{name}: got {value}; expected a finite number above 0.")
    return value


def checked_time(seconds: float | None) -> float | None:
    """Validate a time limit in seconds.

    Raises
    ------
    ValueError
        If it is negative, NaN or infinite.
    """
    return None if seconds is None else checked_number("max_time", seconds)


def _number(name: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: got {value!r}; expected a number.") from None
