"""Random subsets, and batches of about equal length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

__all__ = ["batches_by_length", "random_subset"]

Item = TypeVar("Item")

SORTED_TOGETHER = 20
"""Number of batches whose items are sorted by length."""


def random_subset(items: list[Item], n: int | None) -> list[Item]:
    """Return a deterministic random subset of n items in their order, or all for None."""
    if n is None or n >= len(items):
        return items
    chosen = np.random.default_rng(0).choice(len(items), n, replace=False)
    return [items[i] for i in sorted(chosen)]


def batches_by_length(
    items: Sequence[Item], length: Callable[[Item], Any], size: int, rng: np.random.Generator
) -> Iterator[list[Item]]:
    """Yield all items once in random order, in batches of about equal length."""
    order, pool = rng.permutation(len(items)), SORTED_TOGETHER * size
    chunks: list[list[Item]] = []
    for start in range(0, len(order), pool):
        some = sorted((items[i] for i in order[start : start + pool]), key=length)
        chunks += [some[i : i + size] for i in range(0, len(some), size)]
    for i in rng.permutation(len(chunks)):
        yield chunks[i]
