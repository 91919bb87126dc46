"""Where a factor over the arcs of a sentence has the arc from one word to another."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf

__all__ = ["PARTS", "arc_slot", "n_words", "part_of_row"]

PARTS = 3
"""Parts of a word's arcs in which slots and heads go up together."""


@leaf
def n_words(arity: int, n_labels: float) -> int:
    """Return the number of words of a factor of so many slots."""
    n: int = round(np.sqrt(arity / n_labels))
    return n


@leaf
def arc_slot(word: int, head: int, n: int, packed: bool) -> int:
    """Return where a factor of `n` words has the arc to a word from a head (itself: the root)."""
    if packed:
        return word * n + head
    if head == word:
        return word * n
    return word * n + head + (1 if head < word else 0)


@leaf
def part_of_row(part: int, word: int, n: int, packed: bool) -> tuple[int, int, int]:
    """Return the first slot and the first head of a part of a word's arcs, and their number."""
    if packed:
        return word * n, 0, n if part == 0 else 0
    if part == 0:
        return word * n, word, 1
    if part == 1:
        return word * n + 1, 0, word
    return word * n + word + 1, word + 1, n - word - 1
