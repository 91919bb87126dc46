"""Quickselect: the best subset of limited size."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray, IndexArray
from lpsmap_factors_struct.arrays import copy


@leaf
def kth_largest(numbers: FloatArray, k: int) -> float:
    """Return the k-th largest number (``1 <= k <= len(numbers)``), in expected time O(n).

    Quickselect (Hoare 1961) with the median of three as pivot. Reorders `numbers`.
    """
    low, high, place = 0, len(numbers) - 1, k - 1
    while low < high:
        a, b, c = numbers[low], numbers[(low + high) // 2], numbers[high]
        pivot = max(min(a, b), min(max(a, b), c))
        left, right = low, high
        while left <= right:
            while numbers[left] > pivot:
                left += 1
            while numbers[right] < pivot:
                right -= 1
            if left <= right:
                numbers[left], numbers[right] = numbers[right], numbers[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return float(numbers[place])


@leaf
def best_subset(
    scores: FloatArray,
    k: int,
    exact: bool,
    spare: FloatArray,
    start: int,
    entry: IndexArray,
    value: FloatArray,
) -> int:
    """Write the members of the best subset of at most, or exactly, `k`; return their number.

    Ties are broken in favour of the first. Unless `exact`, only positive scores are taken.

    Parameters
    ----------
    scores
        Finite scores.
    k, exact
        Size of the subset; at most as many as there are scores.
    spare
        Workspace of the size of `scores`.
    start, entry, value
        First position of the result, and the arrays for members and values.
    """
    if k == 0:
        return 0
    n = len(scores)
    copy(scores, spare)
    least = kth_largest(spare[:n], k)
    tied = k
    for i in range(n):
        if scores[i] > least:
            tied -= 1
    at = start
    for i in range(n):
        if scores[i] < least or not (exact or scores[i] > 0.0):
            continue
        if scores[i] == least:
            if tied == 0:
                continue
            tied -= 1
        entry[at], value[at] = i, 1.0
        at += 1
    return at - start


def best_indicator(eta_u: FloatArray, k: int, exact: bool) -> tuple[int, ...]:
    """Return the best subset of at most, or exactly, `k` as zeros and ones."""
    n = len(eta_u)
    scores, entry = np.ascontiguousarray(eta_u, dtype=np.float64), np.empty(n, dtype=np.int32)
    size = best_subset(scores, k, exact, np.empty(n), 0, entry, np.empty(n))
    chosen = np.zeros(n, dtype=int)
    chosen[entry[:size]] = 1
    return tuple(chosen.tolist())
