"""Mixtures of orderings with given mean positions.

A point of the permutahedron is a mixture of the best ordering for it, taken as scores, and of the
point where the ray from that ordering through it leaves the permutahedron. There a constraint is
tight, so the items split into two blocks, which are ordered independently. After at most n - 1
steps every block is a single item.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, IntArray

ROUNDING = 1e-13
"""Rounding of the mean positions of the whole mixture. That of the rest of the mixture is larger by
one over the weight of the rest."""

MAX_STEPS = 100
"""Maximum number of steps of Newton's method to the end of a ray; it takes a few."""


def mix_orders(mean: FloatArray, block: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the weights and the positions of orderings with some mean positions.

    Parameters
    ----------
    mean
        For each of n items, its mean position, from 0 to n - 1.
    block
        For each item, the first position of its block: the items of a block share the positions
        from this one on.

    Returns
    -------
    weights
        The weights, which are positive and sum to 1.
    positions
        The positions of the items, 0 to n - 1, one row for each ordering.
    """
    mean, block, rest = mean.copy(), block.copy(), 1.0
    weights, orders = list[float](), list[IntArray]()
    while True:
        size = np.bincount(block, minlength=len(mean))[block]
        # steps amplify the rounding of sums
        excess = np.bincount(block, mean - (block + 0.5 * (size - 1)), len(mean))
        mean -= excess[block] / size
        position = np.empty(len(mean), dtype=np.int64)
        position[np.lexsort((mean, block))] = np.arange(len(mean))
        ray, rounding = mean - position, ROUNDING / rest
        orders.append(position)
        if np.abs(ray).max(initial=0.0) <= rounding:
            return np.array([*weights, rest]), np.array(orders)
        length, tight = _end_of_ray(mean, ray, block, rounding)
        weights.append(rest * length / (1.0 + length))
        rest /= 1.0 + length
        mean += length * ray
        first = block[tight][0]
        block[(block == first) & ~tight] += np.count_nonzero(tight)


def _end_of_ray(
    mean: FloatArray, ray: FloatArray, block: IntArray, rounding: float
) -> tuple[float, BoolArray]:
    """Return the largest t with ``mean + t ray`` in the polytope, and items with a tight sum.

    These are the first items of a block, but not all.

    Newton's method on the largest violation, which is convex in t (Dinkelbach 1967). It starts
    where the first item leaves the positions of its block.
    """
    last = block + np.bincount(block, minlength=len(mean))[block] - 1
    below, above = np.full((2, len(mean)), np.inf)
    np.divide(block - mean, ray, out=below, where=ray < -rounding)
    np.divide(last - mean, ray, out=above, where=ray > rounding)
    first = int(np.argmin(np.minimum(below, above)))
    length = max(float(min(below[first], above[first])), 0.0)
    tight = np.arange(len(mean)) == first
    if above[first] < below[first]:
        tight = (block == block[first]) & ~tight
    for _ in range(MAX_STEPS):
        point = mean + length * ray
        order = np.lexsort((point, block))
        sums = np.cumsum(np.arange(len(mean)) - point[order])  # 0 at the end of a block
        sums[last[order] == np.arange(len(mean))] = 0.0
        k = int(np.argmax(sums))
        violating = np.zeros(len(mean), dtype=bool)
        violating[order[block[order[k]] : k + 1]] = True
        slope = -float(ray[violating].sum())
        nearer = length - sums[k] / slope if slope > 0.0 else length
        if not (sums[k] > rounding * (1.0 + length) and nearer < length):
            break
        length, tight = max(nearer, 0.0), violating
    return length, tight
