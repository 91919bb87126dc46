"""The best projective dependency tree: no two arcs cross, nor one with an arc from the root."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_factors_struct.maxplus import LOOK_PERIOD, best_sum, where_best

__all__ = ["Spans", "projective_tree", "spans_memory"]


class Spans(NamedTuple):
    """Working memory for sentences of up to ``n`` words; tables are flat, ``n`` numbers a row.

    A span of words ``h .. e`` (or ``e .. h``) whose head is at its end h is *complete* if all other
    words in it descend from h, and *incomplete* if e is a child of h that lacks its far side.
    """

    scores: FloatArray
    """Arcs by (word, head), with the best of every row at 0."""
    incomplete: FloatArray
    """Best incomplete span by (h, e)."""
    complete: FloatArray
    """Best complete span by (h, e)."""
    transposed: FloatArray
    """Best complete span by (e, h)."""
    prefix: FloatArray
    """For each k, the best trees of the first k words."""
    rooted: FloatArray
    """For each word that hangs from the root, the best of it, its left side and all before."""
    stack: IntArray
    """Complete spans yet to be read out, as pairs (h, e)."""
    heads: IntArray
    """The result: for each word its head, itself if it hangs from the root."""


@kernel
def spans_memory(n: int) -> Spans:
    """Return working memory for sentences of up to `n` words."""
    return Spans(
        scores=np.empty(n * n),
        incomplete=np.empty(n * n),
        complete=np.empty(n * n),
        transposed=np.empty(n * n),
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
    _normalise(scores, n, memory.scores)
    _fill(memory.scores, n, memory.incomplete, memory.complete, memory.transposed)
    top = _root(n, single_root, memory)
    _read_out(top, n, memory.incomplete, memory.complete, memory.transposed, memory)


@leaf
def _normalise(scores: FloatArray, n: int, target: FloatArray) -> None:
    """Reduce every row to maximum 0, which changes no comparison: a word has exactly one head.

    A forced arc, of hugely positive score, would otherwise swallow the digits of whole spans.
    """
    for word in range(n):
        row = scores[word * n : (word + 1) * n]
        most = row[0]
        for h in range(n):
            most = max(most, row[h])
        for h in range(n):
            target[word * n + h] = row[h] - most


@leaf
def _fill(
    scores: FloatArray,
    n: int,
    incomplete: FloatArray,
    complete: FloatArray,
    transposed: FloatArray,
) -> None:
    for i in range(n):
        complete[i * n + i] = transposed[i * n + i] = 0.0
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            # words i .. k descend from i, words k + 1 .. j from j
            joined = best_sum(complete, i * n + i, complete, j * n + i + 1, width)
            incomplete[i * n + j] = joined + scores[j * n + i]
            incomplete[j * n + i] = joined + scores[i * n + j]
            # the head's outermost child is k, and k's far side reaches the end of the span
            right = best_sum(incomplete, i * n + i + 1, transposed, j * n + i + 1, width)
            complete[i * n + j] = transposed[j * n + i] = right
            left = best_sum(incomplete, j * n + i, transposed, i * n + i, width)
            complete[j * n + i] = transposed[i * n + j] = left
        if width * (n - width) > LOOK_PERIOD and interrupted():
            break


@leaf
def _root(n: int, single_root: bool, memory: Spans) -> int:
    """Hang words from the root; return how many complete spans are on the stack.

    A tree is a row of neighbouring spans, each the descendants of one child of the root.
    """
    prefix, rooted, transposed = memory.prefix, memory.rooted, memory.transposed
    stack, heads = memory.stack, memory.heads
    prefix[0] = 0.0
    for r in range(n):
        starts = 1 if single_root else r + 1
        joined = best_sum(prefix, 0, memory.complete, r * n, starts)
        rooted[r] = joined + memory.scores[r * n + r]
        if not single_root:
            prefix[r + 1] = best_sum(rooted, 0, transposed, r * n, r + 1)
    top = 0
    end = n
    while end > 0:
        r = where_best(rooted, 0, transposed, (end - 1) * n, end)
        heads[r] = r
        top = _push(stack, top, r, end - 1)
        end = where_best(prefix, 0, memory.complete, r * n, 1 if single_root else r + 1)
        top = _push(stack, top, r, end)
    return top


@leaf
def _read_out(
    top: int,
    n: int,
    incomplete: FloatArray,
    complete: FloatArray,
    transposed: FloatArray,
    memory: Spans,
) -> None:
    """Take the spans on the stack apart, by the comparisons that made them, into heads."""
    stack, heads = memory.stack, memory.heads
    while top > 0:
        top -= 1
        h, e = stack[2 * top], stack[2 * top + 1]
        low, width = min(h, e), abs(h - e)
        first = low + 1 if h < e else low
        child = first + where_best(incomplete, h * n + first, transposed, e * n + first, width)
        heads[child] = h
        top = _push(stack, top, child, e)
        i, j = min(h, child), max(h, child)
        k = i + where_best(complete, i * n + i, complete, j * n + i + 1, j - i)
        top = _push(stack, top, i, k)
        top = _push(stack, top, j, k + 1)


@leaf
def _push(stack: IntArray, top: int, h: int, e: int) -> int:
    """Put a complete span on the stack unless it is a single word."""
    if h == e:
        return top
    stack[2 * top], stack[2 * top + 1] = h, e
    return top + 1
