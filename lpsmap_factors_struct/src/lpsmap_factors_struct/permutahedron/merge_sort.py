"""A stable sort for leaves, since NumPy's allocates memory in compiled code."""

from __future__ import annotations

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arrays import copy


@leaf
def sort_items(items: IntArray, scores: FloatArray, spare: IntArray) -> None:
    """Sort items from the lowest score to the highest; ties keep their order.

    Bottom-up merge sort, in O(n log n), with a workspace of as many numbers. The score of item i is
    ``scores[i]``.
    """
    n = len(items)
    source, target = items, spare[:n]
    width = 1
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            left, right = begin, middle
            for at in range(begin, end):
                if right == end or (
                    left < middle and scores[source[left]] <= scores[source[right]]
                ):
                    target[at] = source[left]
                    left += 1
                else:
                    target[at] = source[right]
                    right += 1
        source, target = target, source
        width *= 2
    copy(source, items)
