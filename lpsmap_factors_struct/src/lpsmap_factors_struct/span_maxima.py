"""Inner loops of dynamic programs: maxima of sums of two series, for one entry or a row."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray

LANES = 4
"""Rows are processed in whole vectors of this length. The last one may extend beyond the row."""


@leaf
def best_sums(
    x: FloatArray,
    at_x: int,
    step_x: int,
    y: FloatArray,
    at_y: int,
    step_y: int,
    count: int,
    width: int,
    target: FloatArray,
) -> None:
    """Write ``target[i] = max_k x[at_x + k step_x + i] + y[at_y + k step_y + i]``, i < width.

    The count is at least one, the steps are not negative, and the target does not overlap x and y.
    The compiler then vectorises the loops. Up to ``LANES - 1`` numbers after the row are read and
    written. Four terms are processed at a time, to read the target less often, as in
    `lpsmap_factors_struct.viterbi.best_arrivals`.
    """
    lanes, one, two, three = np.uint64(LANES), np.uint64(1), np.uint64(2), np.uint64(3)
    size = (np.uint64(width) + lanes - one) // lanes * lanes
    x0, y0, dx, dy = np.uint64(at_x), np.uint64(at_y), np.uint64(step_x), np.uint64(step_y)
    last = np.uint64(count) - one
    for i in range(size):
        target[i] = -np.inf
    for k in range(np.uint64(0), np.uint64(count), np.uint64(4)):
        k2, k3, k4 = min(k + one, last), min(k + two, last), min(k + three, last)
        a, a2, a3, a4 = x0 + k * dx, x0 + k2 * dx, x0 + k3 * dx, x0 + k4 * dx
        b, b2, b3, b4 = y0 + k * dy, y0 + k2 * dy, y0 + k3 * dy, y0 + k4 * dy
        for i in range(size):
            p, q = x[a + i] + y[b + i], x[a2 + i] + y[b2 + i]
            r, s = x[a3 + i] + y[b3 + i], x[a4 + i] + y[b4 + i]
            most = target[i]
            p = p if p > q else q
            r = r if r > s else s
            p = p if p > most else most
            target[i] = p if p > r else r


@leaf
def best_sum(
    x: FloatArray, at_x: int, step_x: int, y: FloatArray, at_y: int, step_y: int, count: int
) -> float:
    """Return the maximum of ``x[at_x + k step_x] + y[at_y + k step_y]`` over k."""
    a = b = c = d = -np.inf
    for _ in range(count // 4):  # four independent chains of comparisons run in parallel
        a = max(a, x[at_x] + y[at_y])
        b = max(b, x[at_x + step_x] + y[at_y + step_y])
        c = max(c, x[at_x + 2 * step_x] + y[at_y + 2 * step_y])
        d = max(d, x[at_x + 3 * step_x] + y[at_y + 3 * step_y])
        at_x, at_y = at_x + 4 * step_x, at_y + 4 * step_y
    for _ in range(count % 4):
        a = max(a, x[at_x] + y[at_y])
        at_x, at_y = at_x + step_x, at_y + step_y
    return max(max(a, b), max(c, d))


@leaf
def where_best(
    x: FloatArray, at_x: int, step_x: int, y: FloatArray, at_y: int, step_y: int, count: int
) -> int:
    """Return the first k that attains the maximum of `best_sum`."""
    best, most = 0, -np.inf
    for k in range(count):
        one = x[at_x] + y[at_y]
        best, most = k if one > most else best, one if one > most else most
        at_x, at_y = at_x + step_x, at_y + step_y
    return best
