"""The threshold of a projection onto the simplex."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray

GUESS_MARGIN = 4 * 2.0**-52
"""Relative reduction of a guessed threshold, which rounding may have raised."""
MAX_GUESS_SUM = 16.0
"""Largest sum of the slots at a guess, which limits the loss of precision."""


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

    Newton's method on a convex function: starting from a lower bound, the set of slots above the
    threshold shrinks in every step, and the step from the right set is exact (Michelot 1986). NaN
    if a number is NaN.

    Parameters
    ----------
    y, q
        Numbers, of which the first `count` are used. Those of `q` are positive.
    count
        Number of slots.
    guess
        A lower bound of tau, such as the threshold of some of the slots, or -inf. If it is far
        below tau, the largest threshold of a single slot is used instead.
    near, scale
        Workspace of `count` numbers each.
    """
    size = np.uint64(count)  # signed indices may be negative, and checking them costs time
    tau, total, weight, kept = guess, np.inf, 0.0, np.uint64(0)
    if guess > -np.inf:
        tau -= GUESS_MARGIN * abs(tau)
        kept, total, weight = _above(y, q, size, tau, near, scale)
    if not 0.0 < total < MAX_GUESS_SUM:
        tau = _best_single(y, q, size)
        tau -= GUESS_MARGIN * abs(tau)
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
    for i in range(np.uint64(0), even, np.uint64(2)):  # two independent chains of comparisons
        a = max(a, (y[i] - 1.0) / q[i])
        b = max(b, (y[i + np.uint64(1)] - 1.0) / q[i + np.uint64(1)])
    for i in range(even, size):
        a = max(a, (y[i] - 1.0) / q[i])
    return max(a, b)


@leaf
def _above(
    y: FloatArray, q: FloatArray, size: np.uint64, tau: float, near: FloatArray, scale: FloatArray
) -> tuple[np.uint64, float, float]:
    """Write the excess over `tau` and the q of the slots above it.

    Returns the number of these slots, and the sums of both.
    """
    kept, total, weight = np.uint64(0), 0.0, 0.0
    for i in range(size):
        value = y[i] - tau * q[i]
        near[kept], scale[kept] = value, q[i]
        kept += np.uint64(value > 0.0)
    for i in range(kept):
        total += near[i]
        weight += scale[i]
    return kept, total, weight
