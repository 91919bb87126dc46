"""The threshold of a projection onto the simplex."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import leaf

__all__ = ["threshold"]

FloatArray = npt.NDArray[np.float64]

TINY = 4 * 2.0**-52


@leaf
def threshold(
    y: FloatArray, q: FloatArray, count: int, near: FloatArray, scale: FloatArray
) -> float:
    """Return tau with ``sum_i max(0, y_i - tau q_i) = 1``.

    Newton's method on a convex function: from the best of single slots' thresholds, which is a
    lower bound, the slots above the threshold only ever become fewer, and the step from the right
    ones is exact (Michelot 1986). NaN if some number is.

    Parameters
    ----------
    y, q
        Numbers, positive ones in the case of `q`, of which the first `count` are used.
    near, scale
        Working memory of that size.
    """
    size = np.uint64(count)  # signed indices may be negative: code for that costs more than sums
    even = size - size % np.uint64(2)
    a = b = -np.inf
    for i in range(np.uint64(0), even, np.uint64(2)):  # two chains of comparisons at once
        a = max(a, (y[i] - 1.0) / q[i])
        b = max(b, (y[i + np.uint64(1)] - 1.0) / q[i + np.uint64(1)])
    for i in range(even, size):
        a = max(a, (y[i] - 1.0) / q[i])
    tau = max(a, b)
    tau -= TINY * abs(tau)
    kept, total, weight = np.uint64(0), 0.0, 0.0
    for i in range(size):
        value = y[i] - tau * q[i]
        near[kept], scale[kept] = value, q[i]
        kept += np.uint64(value > 0.0)
    if kept == 0:  # a number is NaN
        return np.nan
    for i in range(kept):
        total += near[i]
        weight += scale[i]
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
