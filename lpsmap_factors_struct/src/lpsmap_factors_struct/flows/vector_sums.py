"""Inner products and sums over ranges of arrays, in an order that allows vectorisation."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray

__all__ = ["add_multiple", "inner_product", "range_sum"]

ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@leaf
def range_sum(x: FloatArray, first: np.uint64, n: np.uint64) -> float:
    """Return the sum of ``x[first : first + n]``, by four independent chains of additions."""
    at, last = first, first + n
    whole = last - n % FOUR
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    while at < whole:
        a += x[at]
        b += x[at + ONE]
        c += x[at + TWO]
        d += x[at + THREE]
        at += FOUR
    while at < last:
        a += x[at]
        at += ONE
    return (a + b) + (c + d)


@leaf
def inner_product(
    x: FloatArray, first: np.uint64, y: FloatArray, second: np.uint64, n: np.uint64
) -> float:
    """Return the inner product of ``x[first : first + n]`` and ``y[second : second + n]``."""
    p, q, last = first, second, first + n
    whole = last - n % FOUR
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    while p < whole:
        a += x[p] * y[q]
        b += x[p + ONE] * y[q + ONE]
        c += x[p + TWO] * y[q + TWO]
        d += x[p + THREE] * y[q + THREE]
        p += FOUR
        q += FOUR
    while p < last:
        a += x[p] * y[q]
        p += ONE
        q += ONE
    return (a + b) + (c + d)


@leaf
def add_multiple(
    f: float, x: FloatArray, first: np.uint64, y: FloatArray, second: np.uint64, n: np.uint64
) -> None:
    """Add ``f * x[first : first + n]`` to ``y[second : second + n]``."""
    for j in range(n):
        y[second + j] += f * x[first + j]
