"""The best projective dependency tree: no two arcs cross, nor one with an arc from the root."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arborescence import first_maximum
from lpsmap_factors_struct.maxplus import LANES, LOOK_PERIOD, best_sum, best_sums, where_best

__all__ = ["Spans", "projective_tree", "spans_memory"]


class Spans(NamedTuple):
    """Working memory for sentences of up to ``n`` words.

    A span of `width` more words than its first one, i, is headed at one of its two ends: it leads
    *right* if its head is i, and *left* if that is its last word. It is *complete* if all other
    words in it descend from the head, and *incomplete* if its other end is a child of the head that
    lacks its far side.

    Tables are flat, ``n`` numbers per row. Spans of one width are a row, by first words: the best
    ones of all are then found by sums of rows, in vector instructions. Rows are ordered so that all
    sums run forward, by falling widths in two of the tables. Four numbers more than are needed are
    read and written.
    """

    right: FloatArray
    """Best complete spans: `width` at row `width`."""
    left: FloatArray
    """`width` at row ``n - 1 - width``."""
    open_right: FloatArray
    """Best incomplete spans, at first the scores of their arcs: `width` at ``n - 1 - width``."""
    open_left: FloatArray
    """`width` at row `width`, and at row 0 the words' scores as children of the root."""
    best: FloatArray
    """A row of sums."""
    prefix: FloatArray
    """For each k, the best trees of the first k words."""
    rooted: FloatArray
    """For each word that hangs from the root, the best of it, its left side and all before."""
    stack: IntArray
    """Complete spans yet to be read out, as pairs of head and far end."""
    heads: IntArray
    """The result: for each word its head, itself if it hangs from the root."""


@kernel
def spans_memory(n: int) -> Spans:
    """Return working memory for sentences of up to `n` words."""
    tables = np.empty((4, n * n + LANES))
    return Spans(
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
def projective_tree(scores: FloatArray, n: int, single_root: bool, memory: Spans) -> None:
    """Find the best projective tree of `n` words, in O(n^3).

    Eisner's (1996) dynamic programme over spans with their head at an end. The root stands before
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
    memory
        Working memory; on return ``memory.heads[:n]`` are the heads.
    """
    if n == 0:
        return
    _normalise(scores, n, memory.open_right, memory.open_left)
    _fill(n, memory)
    top = _root(n, single_root, memory)
    _read_out(top, n, memory)


@leaf
def _normalise(scores: FloatArray, n: int, open_right: FloatArray, open_left: FloatArray) -> None:
    """Write the arcs by their spans, reduced so that a word's best one has 0.

    That changes no comparison: a word has exactly one head. A forced arc, of hugely positive score,
    would otherwise swallow the digits of whole spans.
    """
    for word in range(n):
        row = scores[word * n : (word + 1) * n]
        most = scores[first_maximum(scores, word * n, (word + 1) * n)]
        for h in range(word):
            open_right[(n - 1 - word + h) * n + h] = row[h] - most
        for h in range(word, n):
            open_left[(h - word) * n + word] = row[h] - most


@leaf
def _fill(n: int, memory: Spans) -> None:
    right, left, best = memory.right, memory.left, memory.best
    open_right, open_left = memory.open_right, memory.open_left
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
        if width * (n - width) > LOOK_PERIOD and interrupted():
            break


@leaf
def _root(n: int, single_root: bool, memory: Spans) -> int:
    """Hang words from the root; return how many complete spans are on the stack.

    A tree is a row of neighbouring spans, each the descendants of one child of the root.
    """
    prefix, rooted, right, left = memory.prefix, memory.rooted, memory.right, memory.left
    stack, heads = memory.stack, memory.heads
    prefix[0] = 0.0
    for r in range(n):
        # words k .. r descend from r: the span of that width begins at k
        first, starts = (n - 1 - r) * n, 1 if single_root else r + 1
        rooted[r] = memory.open_left[r] + best_sum(prefix, 0, 1, left, first, n + 1, starts)
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
def _read_out(top: int, n: int, memory: Spans) -> None:
    """Take the spans on the stack apart, by the comparisons that made them, into heads."""
    stack, heads, right, left = memory.stack, memory.heads, memory.right, memory.left
    while top > 0:
        top -= 1
        h, e = stack[2 * top], stack[2 * top + 1]
        low, width = min(h, e), abs(h - e)
        at = (n - 1 - width) * n + low
        if h < e:
            k = where_best(right, width + low, n - 1, memory.open_right, at, n, width)
            child = e - k
        else:
            at += n
            k = where_best(memory.open_left, n + width - 1 + low, n - 1, left, at, n, width)
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
    """Put a complete span on the stack unless it is a single word."""
    if h == e:
        return top
    stack[2 * top], stack[2 * top + 1] = h, e
    return top + 1
