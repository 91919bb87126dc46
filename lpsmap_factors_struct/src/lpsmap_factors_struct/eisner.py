"""Eisner's algorithm: the best projective dependency tree, and the hypergraph of all of them.

No two arcs of a projective tree cross, arcs from the root included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import POLL_PERIOD, HypergraphBuilder
from lpsmap_factors_struct.arc_layout import arc_slot
from lpsmap_factors_struct.arrays import first_maximum
from lpsmap_factors_struct.span_maxima import LANES, best_sum, best_sums, where_best


class SpansWorkspace(NamedTuple):
    """Workspace for sentences of up to ``n`` words.

    A span of words i to ``i + width`` has its head at one of its two ends: it leads *right* if the
    head is the first word, and *left* if the head is the last. It is *complete* if all other words
    in it are descendants of the head. It is *incomplete* if its other end is a child of the head
    whose far side is missing.

    Tables are flat, with ``n`` numbers per row. The spans of one width form a row, by first words,
    so that all of them are computed by vectorised sums of rows. Rows are ordered such that all sums
    run forward: two of the tables have descending widths. Up to four numbers beyond a row are read
    and written.
    """

    right: FloatArray
    """Best complete spans: `width` at row `width`."""
    left: FloatArray
    """`width` at row ``n - 1 - width``."""
    open_right: FloatArray
    """Best incomplete spans, initially the scores of their arcs: `width` at ``n - 1 - width``."""
    open_left: FloatArray
    """`width` at row `width`; row 0 holds the words' scores as children of the root."""
    best: FloatArray
    """A row of sums."""
    prefix: FloatArray
    """For each k, the best trees of the first k words."""
    rooted: FloatArray
    """For each word as a child of the root, the best score of all words up to it."""
    stack: IntArray
    """Complete spans still to be split, as pairs of head and far end."""
    heads: IntArray
    """The result: for each word its head. The word itself stands for the root."""


@kernel
def spans_workspace(n: int) -> SpansWorkspace:
    """Return a workspace for sentences of up to `n` words."""
    tables = np.empty((4, n * n + LANES))
    return SpansWorkspace(
        right=tables[0],
        left=tables[1],
        open_right=tables[2],
        open_left=tables[3],
        best=np.empty(n + LANES),
        prefix=np.empty(n + 1),
        rooted=np.empty(n),
        stack=np.empty(2 * n, dtype=np.int64),
        heads=np.empty(n, dtype=np.int64),
    )


@leaf
def projective_tree(
    scores: FloatArray, n: int, single_root: bool, workspace: SpansWorkspace
) -> None:
    """Find the best projective tree of `n` words, in O(n^3).

    Eisner's (1996) dynamic program over spans with their head at one end. The root stands before
    the first word, and may have several children.

    Parameters
    ----------
    scores
        ``n * n`` finite scores in packed layout: of word h as head of word m at ``m * n + h``, of
        the root as head of m at ``m * n + m``.
    n
        Number of words.
    single_root
        Whether exactly one word hangs from the root.
    workspace
        On return, ``workspace.heads[:n]`` are the heads.
    """
    if n == 0:
        return
    _normalise(scores, n, workspace.open_right, workspace.open_left)
    _fill(n, workspace)
    top = _root(n, single_root, workspace)
    _read_solution(top, n, workspace)


@leaf
def _normalise(scores: FloatArray, n: int, open_right: FloatArray, open_left: FloatArray) -> None:
    """Write the scores of arcs by their spans, reduced so that the best arc of a word has 0.

    This does not change the best tree, since a word has exactly one head. Without it, the huge
    score of a forced arc would cost whole spans their precision.
    """
    for word in range(n):
        row = scores[word * n : (word + 1) * n]
        most = scores[first_maximum(scores, word * n, (word + 1) * n)]
        for h in range(word):
            open_right[(n - 1 - word + h) * n + h] = row[h] - most
        for h in range(word, n):
            open_left[(h - word) * n + word] = row[h] - most


@leaf
def _fill(n: int, workspace: SpansWorkspace) -> None:
    right, left, best = workspace.right, workspace.left, workspace.best
    open_right, open_left = workspace.open_right, workspace.open_left
    right[:n] = 0.0
    left[(n - 1) * n : n * n] = 0.0
    for width in range(1, n):
        count = np.uint64(n - width)
        row, back = np.uint64(width * n), np.uint64((n - 1 - width) * n)
        # words i .. k descend from i, words k + 1 .. j from j
        best_sums(right, 0, n, left, (n - width) * n + 1, n + 1, width, n - width, best)
        for i in range(count):
            open_right[back + i] += best[i]
            open_left[row + i] += best[i]
        # the head's outermost child is k, and k's far side reaches the end of the span
        at = (n - 1 - width) * n
        best_sums(right, width, n - 1, open_right, at, n, width, n - width, best)
        for i in range(count):
            right[row + i] = best[i]
        at = (n - width) * n
        best_sums(open_left, n + width - 1, n - 1, left, at, n, width, n - width, best)
        for i in range(count):
            left[back + i] = best[i]
        if width * (n - width) > POLL_PERIOD and interrupted():
            break


@leaf
def _root(n: int, single_root: bool, workspace: SpansWorkspace) -> int:
    """Attach words to the root; return the number of complete spans on the stack.

    A tree is a sequence of adjacent spans, each with one child of the root and its descendants.
    """
    prefix, rooted, right, left = (
        workspace.prefix,
        workspace.rooted,
        workspace.right,
        workspace.left,
    )
    stack, heads = workspace.stack, workspace.heads
    prefix[0] = 0.0
    for r in range(n):
        # words k .. r descend from r: the span of that width begins at k
        first, starts = (n - 1 - r) * n, 1 if single_root else r + 1
        rooted[r] = workspace.open_left[r] + best_sum(prefix, 0, 1, left, first, n + 1, starts)
        if not single_root:
            prefix[r + 1] = best_sum(rooted, 0, 1, right, r * n, 1 - n, r + 1)
    top = 0
    end = n
    while end > 0:
        r = where_best(rooted, 0, 1, right, (end - 1) * n, 1 - n, end)
        heads[r] = r
        top = _push(stack, top, r, end - 1)
        starts = 1 if single_root else r + 1
        end = where_best(prefix, 0, 1, left, (n - 1 - r) * n, n + 1, starts)
        top = _push(stack, top, r, end)
    return top


@leaf
def _read_solution(top: int, n: int, workspace: SpansWorkspace) -> None:
    """Split the spans on the stack by repeating the comparisons of `_fill`, and write the heads."""
    stack, heads, right, left = workspace.stack, workspace.heads, workspace.right, workspace.left
    while top > 0:
        top -= 1
        h, e = stack[2 * top], stack[2 * top + 1]
        low, width = min(h, e), abs(h - e)
        at = (n - 1 - width) * n + low
        if h < e:
            k = where_best(right, width + low, n - 1, workspace.open_right, at, n, width)
            child = e - k
        else:
            at += n
            k = where_best(workspace.open_left, n + width - 1 + low, n - 1, left, at, n, width)
            child = low + width - 1 - k
        heads[child] = h
        top = _push(stack, top, child, e)
        i, width = min(h, child), abs(h - child)
        at = (n - width) * n + 1 + i
        k = i + where_best(right, i, n, left, at, n + 1, width)
        top = _push(stack, top, i, k)
        top = _push(stack, top, i + width, k + 1)


@leaf
def _push(stack: IntArray, top: int, h: int, e: int) -> int:
    """Push a complete span onto the stack, unless it is a single word."""
    if h == e:
        return top
    stack[2 * top], stack[2 * top + 1] = h, e
    return top + 1


def eisner_hypergraph(
    build: HypergraphBuilder, n: int, n_labels: int, packed: bool, single_root: bool
) -> int:
    """Add the hyperedges of Eisner's (1996) algorithm for `n` words, and return the goal.

    Every tree has one derivation: a complete span is split at its head's outermost child, and the
    root's children are added from left to right. The spans are those of `SpansWorkspace`, without
    items for spans of one word. The incomplete spans of both directions share the item of the two
    spans that they consist of.
    """
    square = n * n
    before, below, goal = 3 * square, 3 * square + n, 3 * square + 2 * n

    def complete(head: IntArray, end: IntArray) -> IntArray:
        return np.where(head == end, -1, head * n + end)

    def incomplete(head: IntArray, end: IntArray) -> IntArray:
        return square + head * n + end

    def arcs(heads: IntArray, tails: IntArray, words: IntArray, parents: IntArray) -> None:
        slots = [arc_slot(w, h, n, packed) * n_labels for w, h in zip(words, parents, strict=True)]
        labels = np.add.outer(np.array(slots, dtype=np.int64), np.arange(n_labels)).reshape(-1)
        build.edges(np.repeat(heads, n_labels), np.repeat(tails, n_labels), labels)

    if n == 0:
        build.edges([goal])
        return goal
    i, k, j = np.indices((n, n, n)).reshape(3, -1)
    a, b, c = (x[(i <= k) & (k < j)] for x in (i, k, j))
    build.edges(2 * square + a * n + c, np.stack([complete(a, b), complete(c, b + 1)], axis=1))
    build.edges(c * n + a, np.stack([incomplete(c, b), complete(b, a)], axis=1))
    a, b, c = (x[(i < k) & (k <= j)] for x in (i, k, j))
    build.edges(a * n + c, np.stack([incomplete(a, b), complete(b, c)], axis=1))
    low, high = np.triu_indices(n, 1)
    arcs(incomplete(low, high), 2 * square + low * n + high, high, low)
    arcs(incomplete(high, low), 2 * square + low * n + high, low, high)
    # a child of the root is preceded by all words before it, then joined with its right side
    words = np.arange(n)
    start, word = (np.zeros_like(words), words) if single_root else np.triu_indices(n)
    trees = np.where(start > 0, before + start, -1)
    build.edges(below + word, np.stack([trees, complete(word, start)], axis=1))
    rooted = goal + 1 + words
    arcs(rooted, below + words, words, words)
    word, end = (words, np.full(n, n - 1)) if single_root else np.triu_indices(n)
    done = np.where(end == n - 1, goal, before + end + 1)
    build.edges(done, np.stack([rooted[word], complete(word, end)], axis=1))
    return goal
