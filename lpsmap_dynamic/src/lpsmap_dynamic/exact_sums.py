"""Exact sums as pairs of floats, for sums of huge and small numbers."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray, IntArray

PLAIN = 1e3
"""Numbers up to this are summed in plain arithmetic, with negligible rounding errors."""

MAX_SUMMABLE = 1e300
"""Maximum magnitude of scores whose float64 sums cannot overflow."""


def sum_exactly(owner: IntArray, values: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the sums of `n` groups of finite numbers, and their rounding errors.

    Parameters
    ----------
    owner, values
        The group of each number, and the numbers.
    n
        Number of groups.
    """
    if not values.size or np.abs(values).max() <= PLAIN:
        return np.bincount(owner, values, minlength=n).astype(np.float64), np.zeros(n)
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=n)
    first = np.cumsum(sizes) - sizes
    high, low = np.zeros((2, n))
    for k in range(int(sizes.max())):
        groups = np.flatnonzero(sizes > k)
        high[groups], more = add_exactly(high[groups], values[order[first[groups] + k]])
        low[groups] += more
    return high, low


def add_exactly(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums of `a` and `b`, and their rounding errors (Knuth)."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = a + b
        of_b = total - a
        lost = (a - (total - of_b)) + (b - of_b)
    return total, np.where(np.isfinite(total), lost, 0.0)


@leaf
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a sum and its rounding error (Knuth 1969)."""
    total = a + b
    if not abs(total) < np.inf:
        return total, 0.0
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)
