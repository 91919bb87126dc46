"""The threshold of a projection onto the simplex."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray

__all__ = ["threshold"]

TINY = 4 * 2.0**-52
"""A guessed threshold begins lower by this, relatively: what rounding may have raised it by."""
FAR = 16.0
"""Sum that slots may have at a guess, so that few digits are lost."""


@leaf
def threshold(
    y: FloatArray,
    q: FloatArray,
    count: int,
    guess: float,
    near: FloatArray,
    scale: FloatArray,
) -> float:
    """Return tau with ``sum_i max(0, y_i - tau q_i) = 1``.

    Newton's method on a convex function: from a lower bound on, the slots above the threshold only
    ever become fewer, and the step from the right ones is exact (Michelot 1986). NaN if some number
    is.

    Parameters
    ----------
    y, q
        Numbers, positive ones in the case of `q`, of which the first `count` are used.
    guess
        A lower bound, such as the threshold of some of the slots, or -inf. Without one that is
        near, the best of single slots' thresholds is.
    near, scale
        Working memory of that size.
    """
    size = np.uint64(count)  # signed indices may be negative: code for that costs more than sums
    tau, total, weight, kept = guess, np.inf, 0.0, np.uint64(0)
    if guess > -np.inf:
        tau -= TINY * abs(tau)
        kept, total, weight = _above(y, q, size, tau, near, scale)
    if not 0.0 < total < FAR:
        tau = _best_single(y, q, size)
        tau -= TINY * abs(tau)
        kept, total, weight = _above(y, q, size, tau, near, scale)
    if kept == 0:  # a number is NaN
        return np.nan
    step = (total - 1.0) / weight
    while True:
        before, kept, total, weight = kept, np.uint64(0), 0.0, 0.0
        for i in range(before):
            value, w = near[i], scale[i]
            near[kept], scale[kept] = value, w
            above = value > step * w
            kept += np.uint64(above)
            total += value * above
            weight += w * above
        if kept == before or kept == 0:
            return tau + step
        step = (total - 1.0) / weight


@leaf
def _best_single(y: FloatArray, q: FloatArray, size: np.uint64) -> float:
    """Return the largest threshold of a single slot."""
    even = size - size % np.uint64(2)
    a = b = -np.inf
    for i in range(np.uint64(0), even, np.uint64(2)):  # two chains of comparisons at once
        a = max(a, (y[i] - 1.0) / q[i])
        b = max(b, (y[i + np.uint64(1)] - 1.0) / q[i + np.uint64(1)])
    for i in range(even, size):
        a = max(a, (y[i] - 1.0) / q[i])
    return max(a, b)


@leaf
def _above(
    y: FloatArray, q: FloatArray, size: np.uint64, tau: float, near: FloatArray, scale: FloatArray
) -> tuple[np.uint64, float, float]:
    """Write what slots above the threshold `tau` exceed it by, and their q; return the sums."""
    kept, total, weight = np.uint64(0), 0.0, 0.0
    for i in range(size):
        value = y[i] - tau * q[i]
        near[kept], scale[kept] = value, q[i]
        kept += np.uint64(value > 0.0)
    for i in range(kept):
        total += near[i]
        weight += scale[i]
    return kept, total, weight
