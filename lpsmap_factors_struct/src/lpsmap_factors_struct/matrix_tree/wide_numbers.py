"""Positive numbers of any size, with tangents: plain floats, or floats times powers of 2^512.

Both are added, multiplied and divided without subtractions, so that results are accurate to the
last digits. Operations on plain numbers are vectorised, but can overflow and underflow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray

RADIX, MAX_VALUE, MIN_VALUE = 2.0**512, 2.0**256, 2.0**-256
"""Radix of the powers, and the range of a wide number's value."""

LOG_RADIX, LOG_RADIX_REST = 512.0 * 0.6931471805599453, 512.0 * 2.3190468138462996e-17
"""The radix's logarithm in float64, and its rounding error."""

MIN_LOG = -690.0
"""Smallest logarithm of a plain number that is not rounded to zero."""


class Numbers(NamedTuple):
    """An array of numbers, ``value * RADIX ** power``."""

    value: FloatArray
    """Not negative. For wide numbers, 0 or between `MIN_VALUE` and `MAX_VALUE`."""
    tangent: FloatArray
    """Changes of the numbers, in the same units; empty if they are not needed."""
    power: FloatArray
    """Whole numbers; empty for plain numbers."""


@kernel
def numbers_of(n: int, moves: bool, wide: bool) -> Numbers:
    """Return `n` zeros, with tangents if `moves`, and with powers if `wide`."""
    return Numbers(np.zeros(n), np.zeros(n if moves else 0), np.zeros(n if wide else 0))


@leaf
def put_exp(to: Numbers, at: int, high: float, low: float, d: float) -> None:
    """Write ``exp(high + low)``, with its tangent for the tangent `d` of the logarithm."""
    value = power = 0.0
    if len(to.power) == 0:
        value = np.exp(high + low) if high + low > MIN_LOG else 0.0
    elif high > -np.inf:
        rest = np.fmod(high, LOG_RADIX)
        power = np.rint((high - rest) / LOG_RADIX)
        value = np.exp(rest - power * LOG_RADIX_REST + low)
    fill(to, at, 1, value, value * d if value > 0.0 else 0.0, power)


@leaf
def fill(to: Numbers, at: int, n: int, value: float, tangent: float, power: float) -> None:
    """Write a number to `n` places."""
    if len(to.power) > 0:
        value, tangent, power = _in_range(value, tangent, power)
        to.power[at : at + n] = power
    to.value[at : at + n] = value
    if len(to.tangent) > 0:
        to.tangent[at : at + n] = tangent


@leaf
def ratio(a: Numbers, i: int, b: Numbers, j: int) -> tuple[float, float, float]:
    """Return the quotient of two numbers: value, tangent and power."""
    value, tangent, power = a.value[i] / b.value[j], 0.0, 0.0
    if len(a.tangent) > 0:
        tangent = (a.tangent[i] - value * b.tangent[j]) / b.value[j]
    if len(a.power) > 0:
        power = a.power[i] - b.power[j]
    return value, tangent, power


@leaf
def add_multiple(
    to: Numbers, at: int, of: Numbers, start: int, n: int, factor: tuple[float, float, float]
) -> None:
    """Add a multiple of `n` numbers to others, which do not overlap them."""
    value, tangent, power = factor
    moves = len(to.tangent) > 0
    if len(to.power) == 0:
        target, source = to.value[at : at + n], of.value[start : start + n]
        for j in range(n):
            target[j] += value * source[j]
        if moves:
            d_target, d_source = to.tangent[at : at + n], of.tangent[start : start + n]
            for j in range(n):
                d_target[j] += value * d_source[j] + tangent * source[j]
        return
    for j in range(n):
        x = of.value[start + j]
        if x > 0.0:
            dx = value * of.tangent[start + j] + tangent * x if moves else 0.0
            _add(to, at + j, value * x, dx, power + of.power[start + j])


@leaf
def log_of(a: Numbers, i: int) -> tuple[float, float]:
    """Return the logarithm of a number's value, and its power; see `log_from`."""
    return np.log(a.value[i]), a.power[i] if len(a.power) > 0 else 0.0


@leaf
def log_from(log: float, power: float) -> float:
    """Return the logarithm of a number, given the logarithm of its value and its power."""
    return log + power * LOG_RADIX_REST + power * LOG_RADIX


@leaf
def _add(to: Numbers, at: int, value: float, tangent: float, power: float) -> None:
    """Add a wide number to an entry of an array."""
    value, tangent, power = _in_range(value, tangent, power)
    mine, moved = to.value[at], to.tangent[at] if len(to.tangent) > 0 else 0.0
    if mine > 0.0:
        ahead = power - to.power[at]
        if ahead < -1.0:  # negligible
            return
        if ahead == 0.0:
            value, tangent = value + mine, tangent + moved
        elif ahead == 1.0:
            value, tangent = value + mine / RADIX, tangent + moved / RADIX
        elif ahead == -1.0:
            value, tangent = mine + value / RADIX, moved + tangent / RADIX
            power += 1.0
        value, tangent, power = _in_range(value, tangent, power)
    to.value[at], to.power[at] = value, power
    if len(to.tangent) > 0:
        to.tangent[at] = tangent


@leaf
def _in_range(value: float, tangent: float, power: float) -> tuple[float, float, float]:
    """Normalise a number, so that its value lies between `MIN_VALUE` and `MAX_VALUE`."""
    if value == 0.0:
        return 0.0, 0.0, 0.0
    if value >= MAX_VALUE:
        value, tangent, power = value / RADIX, tangent / RADIX, power + 1.0
    elif value < MIN_VALUE:
        value, tangent, power = value * RADIX, tangent * RADIX, power - 1.0
    return value, tangent, power
