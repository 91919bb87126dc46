"""Combinations of one entry of each of several lists, in the order of their total losses."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator

__all__ = ["Combination", "combinations"]

Combination = tuple[tuple[int, int], ...]
"""The lists of which not the first entry is chosen, and the number of the entry in each."""


def combinations(n_lists: int, loss: Callable[[int, int], float]) -> Iterator[Combination]:
    """Yield all combinations, each once, in the order of their total losses.

    Lists are in the order of the losses of their second entries. Every combination but the first
    one has a single predecessor, which costs no more: if its last list has an entry beyond the
    second, the one before that; otherwise, the list before it takes its place, with its second
    entry, unless it has another one already. So each has at most three successors, and losses are
    only asked for as they are needed.

    Parameters
    ----------
    n_lists
        The number of lists.
    loss
        Returns the loss of an entry, given the numbers of the list and of the entry; infinity
        beyond the end of a list. The first entries lose nothing, and losses ascend.
    """
    yield ()
    second = [loss(number, 1) for number in range(n_lists)]
    order = sorted((i for i in range(n_lists) if second[i] < math.inf), key=second.__getitem__)
    numbers = itertools.count()
    heap: list[tuple[float, int, Combination]] = []

    def push(combination: Combination) -> None:
        place, entry = combination[-1]
        if place < len(order) and loss(order[place], entry) < math.inf:
            total = sum(loss(order[p], e) for p, e in combination)
            heapq.heappush(heap, (total, next(numbers), combination))

    push(((0, 1),))
    while heap:
        _, _, combination = heapq.heappop(heap)
        yield tuple((order[place], entry) for place, entry in combination)
        before, (place, entry) = combination[:-1], combination[-1]
        push((*before, (place, entry + 1)))
        push((*combination, (place + 1, 1)))
        if entry == 1:
            push((*before, (place + 1, 1)))
