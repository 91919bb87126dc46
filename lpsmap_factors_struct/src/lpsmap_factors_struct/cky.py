"""The algorithm of Cocke, Kasami and Younger: the best binary tree over the words of a sentence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import POLL_PERIOD
from lpsmap_factors_struct.arrays import largest
from lpsmap_factors_struct.span_maxima import LANES, best_sums, where_best


class ChartWorkspace(NamedTuple):
    """Workspace for sentences of up to ``n`` words. Tables are flat, with ``n`` numbers per row."""

    weight: FloatArray
    """By (i, j): the score of the span's best label; 0 for spans that are in every tree."""
    inside: FloatArray
    """By (j - i, i): the best tree over words i to j, laid out as the tables of
    `lpsmap_factors_struct.eisner.SpansWorkspace`."""
    backward: FloatArray
    """The same by ``(n - 1 - (j - i), i)``."""
    best: FloatArray
    """A row of sums."""
    stack: IntArray
    """Spans still to be split, as pairs (i, j)."""
    spans: IntArray
    """The result: the tree's ``2 n - 1`` spans, as pairs (i, j)."""


@kernel
def chart_workspace(n: int) -> ChartWorkspace:
    """Return a workspace for sentences of up to `n` words."""
    tables = np.empty((2, n * n + LANES))
    return ChartWorkspace(
        weight=np.empty(n * n),
        inside=tables[0],
        backward=tables[1],
        best=np.empty(n + LANES),
        stack=np.empty(2 * n, dtype=np.int64),
        spans=np.empty(4 * n, dtype=np.int64),
    )


@leaf
def best_label(scores: FloatArray, i: int, j: int, n: int, n_labels: int) -> int:
    """Return the slot of a span's best label, the first one of a tie."""
    best = (i * n + j) * n_labels
    for k in range(best + 1, (i * n + j + 1) * n_labels):
        if scores[k] > scores[best]:
            best = k
    return best


@leaf
def binary_tree(scores: FloatArray, n: int, n_labels: int, workspace: ChartWorkspace) -> None:
    """Find the best binary tree over `n` words, in ``O(n^3)``.

    The dynamic program of Cocke, Kasami (1965) and Younger (1967). Single words and the whole
    sentence are in every tree, so that only their labels are chosen.

    Parameters
    ----------
    scores
        ``n * n * n_labels`` scores: of words i to j with label k at ``(i * n + j) * n_labels + k``.
    n, n_labels
        Shape of `scores`; at least one each.
    workspace
        On return, ``workspace.spans[: 4 * n - 2]`` holds the spans.
    """
    _weigh(scores, n, n_labels, workspace.weight)
    forced = _forbid_conflicts(n, workspace.weight)
    _fill(n, workspace)
    if forced and workspace.inside[(n - 1) * n] == -np.inf:
        _weigh(scores, n, n_labels, workspace.weight)
        _fill(n, workspace)
    _read_solution(n, workspace)


@leaf
def _weigh(scores: FloatArray, n: int, n_labels: int, weight: FloatArray) -> None:
    weight[: n * n] = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            if j - i < n - 1:
                weight[i * n + j] = scores[best_label(scores, i, j, n, n_labels)]


@leaf
def _forbid_conflicts(n: int, weight: FloatArray) -> bool:
    """Forbid all trees without the forced spans, if there are any; return whether there are.

    Forced spans have huge positive scores, in which all other scores would be lost. Suppose that
    the scores below some L in magnitude sum to less than L in magnitude. Then trees that have all
    spans of L or more and no span of -L or less score above all others. If there is no such tree,
    the whole sentence gets -inf.
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
    """Forbid the spans that cross the span of words i to j."""
    for a in range(i):
        for b in range(i, j):
            weight[a * n + b] = -np.inf
    for a in range(i + 1, j + 1):
        for b in range(j + 1, n):
            weight[a * n + b] = -np.inf


@leaf
def _fill(n: int, workspace: ChartWorkspace) -> None:
    weight, inside, backward, best = (
        workspace.weight,
        workspace.inside,
        workspace.backward,
        workspace.best,
    )
    inside[:n] = 0.0
    backward[(n - 1) * n : n * n] = 0.0
    for width in range(1, n):
        at, row, back = (n - width) * n + 1, width * n, (n - 1 - width) * n
        best_sums(inside, 0, n, backward, at, n + 1, width, n - width, best)
        for i in range(n - width):
            inside[row + i] = backward[back + i] = best[i] + weight[i * n + i + width]
        if width * (n - width) > POLL_PERIOD and interrupted():
            break


@leaf
def _read_solution(n: int, workspace: ChartWorkspace) -> None:
    """Split the whole sentence into spans, by repeating the comparisons of `_fill`."""
    stack, spans = workspace.stack, workspace.spans
    stack[0], stack[1] = 0, n - 1
    top, count = 1, 0
    while top > 0:
        top -= 1
        i, j = stack[2 * top], stack[2 * top + 1]
        spans[2 * count], spans[2 * count + 1] = i, j
        count += 1
        if i < j:
            at = (n - j + i) * n + 1 + i
            k = i + where_best(workspace.inside, i, n, workspace.backward, at, n + 1, j - i)
            stack[2 * top], stack[2 * top + 1] = k + 1, j
            stack[2 * top + 2], stack[2 * top + 3] = i, k
            top += 2
