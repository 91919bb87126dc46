"""Layouts of the arcs of a sentence: the slot of the arc from one word to another."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray

ARC_RANGES = 3
"""Contiguous ranges of a word's arcs, in each of which slots and heads increase together."""


@leaf
def n_words(arity: int, n_labels: float) -> int:
    """Return the number of words of a factor with `arity` slots."""
    n: int = round(np.sqrt(arity / n_labels))
    return n


@leaf
def arc_slot(word: int, head: int, n: int, packed: bool) -> int:
    """Return the slot of the arc from `head` to `word`; the word itself stands for the root."""
    if packed:
        return word * n + head
    if head == word:
        return word * n
    return word * n + head + (1 if head < word else 0)


@leaf
def arc_range(piece: int, word: int, n: int, packed: bool) -> tuple[int, int, int]:
    """Return the first slot and first head of a range (`piece`) of a word's arcs, and its size."""
    if packed:
        return word * n, 0, n if piece == 0 else 0
    if piece == 0:
        return word * n, word, 1
    if piece == 1:
        return word * n + 1, 0, word
    return word * n + word + 1, word + 1, n - word - 1


@leaf
def best_arcs(scores: FloatArray, n: int, n_labels: int, packed: bool, arcs: FloatArray) -> None:
    """Write the scores of the arcs' best labels in packed layout."""
    for word in range(n):
        for head in range(n):
            slot = arc_slot(word, head, n, packed) * n_labels
            most = scores[slot]
            for k in range(1, n_labels):
                most = max(most, scores[slot + k])
            arcs[word * n + head] = most
