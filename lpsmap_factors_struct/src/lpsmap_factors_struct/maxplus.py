"""Inner loops of dynamic programmes: the best of sums of two rows."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.kernels.arrays import FloatArray

__all__ = ["LOOK_PERIOD", "best_sum", "where_best"]

LOOK_PERIOD = 10_000
"""A pass over more sums than this ends with a look at whether the programme is to go on."""


@leaf
def best_sum(x: FloatArray, at_x: int, y: FloatArray, at_y: int, count: int) -> float:
    """Return the maximum of ``x[at_x + k] + y[at_y + k]`` over k."""
    u, v = x[at_x : at_x + count], y[at_y : at_y + count]
    a = b = c = d = -np.inf
    whole = count - count % 4
    for k in range(0, whole, 4):  # four chains of comparisons, which a processor runs at once
        a = max(a, u[k] + v[k])
        b = max(b, u[k + 1] + v[k + 1])
        c = max(c, u[k + 2] + v[k + 2])
        d = max(d, u[k + 3] + v[k + 3])
    for k in range(whole, count):
        a = max(a, u[k] + v[k])
    return max(max(a, b), max(c, d))


@leaf
def where_best(x: FloatArray, at_x: int, y: FloatArray, at_y: int, count: int) -> int:
    """Return the first k of that maximum."""
    best = 0
    for k in range(1, count):
        if x[at_x + k] + y[at_y + k] > x[at_x + best] + y[at_y + best]:
            best = k
    return best
