"""Where a factor over the arcs of a sentence has the arc from one word to another."""

from __future__ import annotations

import numpy as np

from lpsmap_core.compile import leaf

__all__ = ["arc_slot", "n_words"]


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
