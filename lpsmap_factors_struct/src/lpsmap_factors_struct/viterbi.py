"""A step of Viterbi's (1967) dynamic programme: from one layer of states to the next."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray

__all__ = ["best_arrivals", "best_source"]


@leaf
def best_arrivals(
    source: FloatArray,
    at: int,
    transitions: FloatArray,
    step: int,
    n_states: int,
    target: FloatArray,
    to: int,
) -> None:
    """Write ``target[to + j] = max_i source[at + i] + transitions[step + i * n_states + j]``.

    Four source states are processed at a time, to read and write the target less often. The
    arguments are whole arrays, and indices are unsigned: slices, and indices that may wrap around,
    would prevent vectorisation.
    """
    n, four = np.uint64(n_states), np.uint64(4)
    first, row, here = np.uint64(at), np.uint64(step), np.uint64(to)
    for j in range(n):
        target[here + j] = -np.inf
    last = first + n
    whole = last - n % four
    while first < whole:
        a, b = source[first], source[first + np.uint64(1)]
        c, d = source[first + np.uint64(2)], source[first + np.uint64(3)]
        row_b, row_c, row_d = row + n, row + n + n, row + n + n + n
        for j in range(n):
            p, q = a + transitions[row + j], b + transitions[row_b + j]
            r, s = c + transitions[row_c + j], d + transitions[row_d + j]
            p = p if p > q else q
            r = r if r > s else s
            p = p if p > r else r
            target[here + j] = p if p > target[here + j] else target[here + j]
        first += four
        row = row_d + n
    while first < last:
        for j in range(n):
            score = source[first] + transitions[row + j]
            target[here + j] = score if score > target[here + j] else target[here + j]
        first += np.uint64(1)
        row += n


@leaf
def best_source(
    source: FloatArray, at: int, transitions: FloatArray, step: int, n_states: int, j: int
) -> int:
    """Return the first i that attains the maximum of `best_arrivals` at j."""
    n, first = np.uint64(n_states), np.uint64(at)
    row, best = np.uint64(step + j), first
    most = source[first] + transitions[row]
    for i in range(first + np.uint64(1), first + n):
        row += n
        score = source[i] + transitions[row]
        best = np.uint64(i) if score > most else best
        most = score if score > most else most
    return np.int64(best - first)  # type: ignore[return-value]  # int() of it is unsigned
