"""The hypergraph of projective dependency trees."""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import IntArray
from lpsmap_dynamic import HypergraphBuilder
from lpsmap_factors_struct.arc_layout import arc_slot

__all__ = ["eisner_hypergraph"]


def eisner_hypergraph(
    build: HypergraphBuilder, n: int, n_labels: int, packed: bool, single_root: bool
) -> int:
    """Add the hyperedges of Eisner's (1996) algorithm for `n` words, and return the goal.

    Every tree has one derivation: a complete span is split at its head's outermost child, and the
    root's children are added from left to right. The spans are those of
    `lpsmap_factors_struct.projective`, without items for spans of one word. The incomplete spans of
    both directions share the item of the two spans that they consist of.
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
