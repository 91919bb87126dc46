"""The best binary tree over the words of a sentence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arrays import largest
from lpsmap_factors_struct.maxplus import LANES, LOOK_PERIOD, best_sums, where_best

__all__ = ["Chart", "best_label", "binary_tree", "chart_memory"]


class Chart(NamedTuple):
    """Working memory for sentences of up to ``n`` words; tables are flat, ``n`` numbers per row."""

    weight: FloatArray
    """By (i, j): the score of the span's best label; 0 for spans of every tree."""
    inside: FloatArray
    """By (j - i, i): the best tree over words i to j. See `lpsmap_factors_struct.projective.Spans`.
    """
    backward: FloatArray
    """The same by ``(n - 1 - (j - i), i)``."""
    best: FloatArray
    """A row of sums."""
    stack: IntArray
    """Spans yet to be taken apart, as pairs (i, j)."""
    spans: IntArray
    """The result: the tree's ``2 n - 1`` spans, as pairs (i, j)."""


@kernel
def chart_memory(n: int) -> Chart:
    """Return working memory for sentences of up to `n` words."""
    tables = np.empty((2, n * n + LANES))
    return Chart(
        weight=np.empty(n * n),
        inside=tables[0],
        backward=tables[1],
        best=np.empty(n + LANES),
        stack=np.empty(2 * n, dtype=np.int64),
        spans=np.empty(4 * n, dtype=np.int64),
    )


@leaf
def best_label(scores: FloatArray, i: int, j: int, n: int, n_labels: int) -> int:
    """Return the slot of a span's best label, the first of equal ones."""
    best = (i * n + j) * n_labels
    for k in range(best + 1, (i * n + j + 1) * n_labels):
        if scores[k] > scores[best]:
            best = k
    return best


@leaf
def binary_tree(scores: FloatArray, n: int, n_labels: int, memory: Chart) -> None:
    """Find the best binary tree over `n` words, in ``O(n^3)``.

    The dynamic programme of Cocke, Kasami (1965) and Younger (1967). Single words and the whole
    sentence are in every tree, so that only their labels are a choice.

    Parameters
    ----------
    scores
        ``n * n * n_labels`` scores: of words i to j with label k at ``(i * n + j) * n_labels + k``.
    n, n_labels
        Shape of `scores`; at least one each.
    memory
        Working memory; on return ``memory.spans[: 4 * n - 2]`` has the spans.
    """
    _weigh(scores, n, n_labels, memory.weight)
    forced = _leave_forced(n, memory.weight)
    _fill(n, memory)
    if forced and memory.inside[(n - 1) * n] == -np.inf:
        _weigh(scores, n, n_labels, memory.weight)
        _fill(n, memory)
    _read_out(n, memory)


@leaf
def _weigh(scores: FloatArray, n: int, n_labels: int, weight: FloatArray) -> None:
    weight[: n * n] = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            if j - i < n - 1:
                weight[i * n + j] = scores[best_label(scores, i, j, n, n_labels)]


@leaf
def _leave_forced(n: int, weight: FloatArray) -> bool:
    """Leave no tree but those with all forced spans, if there are any; return whether there are.

    Forced spans, of hugely positive score, would otherwise swallow the digits of all sums. If the
    scores below some L sum to less than L in magnitude, trees that have all spans of L or more and
    none of -L or less score above all others; without such a tree, the whole sentence gets -inf.
    """
    large, rest, count = largest(weight[: n * n]) / 16.0, 0.0, 0
    for k in range(n * n):
        if weight[k] >= large:
            count += 1
        elif weight[k] > -large:
            rest += abs(weight[k])
    if rest >= large / 2.0 or count > n:
        return False
    for i in range(n):
        for j in range(i, n):
            if weight[i * n + j] >= large:
                weight[i * n + j] = 0.0
                _forbid_crossing(i, j, n, weight)
                count -= 1
            elif weight[i * n + j] <= -large:
                weight[i * n + j] = -np.inf
    if count > 0:
        weight[n - 1] = -np.inf
    return True


@leaf
def _forbid_crossing(i: int, j: int, n: int, weight: FloatArray) -> None:
    """Forbid the spans that hold a part of words i to j and others, but not all of both."""
    for a in range(i):
        for b in range(i, j):
            weight[a * n + b] = -np.inf
    for a in range(i + 1, j + 1):
        for b in range(j + 1, n):
            weight[a * n + b] = -np.inf


@leaf
def _fill(n: int, memory: Chart) -> None:
    weight, inside, backward, best = memory.weight, memory.inside, memory.backward, memory.best
    inside[:n] = 0.0
    backward[(n - 1) * n : n * n] = 0.0
    for width in range(1, n):
        at, row, back = (n - width) * n + 1, width * n, (n - 1 - width) * n
        best_sums(inside, 0, n, backward, at, n + 1, width, n - width, best)
        for i in range(n - width):
            inside[row + i] = backward[back + i] = best[i] + weight[i * n + i + width]
        if width * (n - width) > LOOK_PERIOD and interrupted():
            break


@leaf
def _read_out(n: int, memory: Chart) -> None:
    """Take the whole sentence apart, by the comparisons that made it, into spans."""
    stack, spans = memory.stack, memory.spans
    stack[0], stack[1] = 0, n - 1
    top, count = 1, 0
    while top > 0:
        top -= 1
        i, j = stack[2 * top], stack[2 * top + 1]
        spans[2 * count], spans[2 * count + 1] = i, j
        count += 1
        if i < j:
            at = (n - j + i) * n + 1 + i
            k = i + where_best(memory.inside, i, n, memory.backward, at, n + 1, j - i)
            stack[2 * top], stack[2 * top + 1] = k + 1, j
            stack[2 * top + 2], stack[2 * top + 3] = i, k
            top += 2
