"""Topological order of the items below a goal, and validation of hypergraphs."""

from __future__ import annotations

import numpy as np

from lpsmap_core import kernel
from lpsmap_core.api import IntArray

FOUND, CYCLE, UNDERIVED = 0, 1, 2

BLOCK = 62
"""Number of slots that are checked together, one per bit."""

MAX_SIZE = 1 << 40
"""Sizes of derivations are clipped to this, since they can be exponential."""


@kernel
def post_order(
    first_edge: IntArray, tails: IntArray, goal: int, order: IntArray
) -> tuple[int, int]:
    """Write the items below a goal, tails before heads; return the outcome, and its item.

    Parameters
    ----------
    first_edge
        (I + 1,) item i, counted from 0, is the head of these hyperedges.
    tails
        (2 E,) items, or -1.
    goal
        The goal item.
    order
        (I,) the output.

    Returns
    -------
    what
        `FOUND`; `CYCLE`; or `UNDERIVED`, for an item that is not a head.
    number
        The number of items, or the invalid item.
    """
    n = len(first_edge) - 1
    unseen, is_open, done = 0, 1, 2
    state, place = np.full(n, unseen), np.empty(n, dtype=np.int64)
    stack = np.empty(n, dtype=np.int64)
    stack[0], top, count = goal, 1, 0
    state[goal], place[goal] = is_open, 2 * first_edge[goal]
    while top > 0:
        item = stack[top - 1]
        if first_edge[item] == first_edge[item + 1]:
            return UNDERIVED, item
        if place[item] == 2 * first_edge[item + 1]:
            state[item], order[count] = done, item
            count += 1
            top -= 1
            continue
        tail = tails[place[item]]
        place[item] += 1
        if tail < 0 or state[tail] == done:
            continue
        if state[tail] == is_open:
            return CYCLE, tail
        state[tail], place[tail] = is_open, 2 * first_edge[tail]
        stack[top] = tail
        top += 1
    return FOUND, count


@kernel
def on_twice(
    first_edge: IntArray,
    tails: IntArray,
    first_entry: IntArray,
    entries: IntArray,
    begin: int,
    end: int,
) -> tuple[int, int]:
    """Return a hyperedge below which a derivation can switch on an entry twice, and the entry.

    Considers the entries from `begin` to `end`. Derivations of tails combine freely, so it suffices
    to know the entries that each item can switch on. Both results are -1 if there is none; `tails`
    are counted from 1, as in `Edges`.
    """
    n = len(first_edge) - 1
    if _ranges_are_apart(first_edge, tails, first_entry, entries, begin, end):
        return -1, -1
    possible = np.zeros(n + 1, dtype=np.int64)
    for low in range(begin, end, BLOCK):
        high = min(low + BLOCK, end)
        for i in range(n):
            here = 0
            for e in range(first_edge[i], first_edge[i + 1]):
                a, b = possible[tails[2 * e]], possible[tails[2 * e + 1]]
                twice, both, own = a & b, a | b, 0
                for k in range(first_entry[e], first_entry[e + 1]):
                    if low <= entries[k] < high:
                        bit = 1 << (entries[k] - low)
                        twice |= own & bit
                        own |= bit
                twice |= own & both
                if twice:
                    while twice & 1 == 0:
                        twice >>= 1
                        low += 1
                    return e, low
                here |= own | both
            possible[i + 1] = here
    return -1, -1


@kernel
def _ranges_are_apart(
    first_edge: IntArray,
    tails: IntArray,
    first_entry: IntArray,
    entries: IntArray,
    begin: int,
    end: int,
) -> bool:
    """Return whether ranges of entries prove that no derivation switches on an entry twice.

    The entries of an item lie between the first and last entry of its derivations. If positions are
    ordered, as in chains and projective trees, the ranges of tails are disjoint: one pass shows it,
    instead of one for every `BLOCK` entries.
    """
    n = len(first_edge) - 1
    first, last = np.full(n + 1, end), np.full(n + 1, begin)
    for i in range(n):
        for e in range(first_edge[i], first_edge[i + 1]):
            a, b = tails[2 * e], tails[2 * e + 1]
            if first[a] < last[b] and first[b] < last[a]:
                return False
            low, high = min(first[a], first[b]), max(last[a], last[b])
            for k in range(first_entry[e], first_entry[e + 1]):
                entry = entries[k]
                if begin <= entry < end:
                    if first[a] <= entry < last[a] or first[b] <= entry < last[b]:
                        return False
                    for j in range(first_entry[e], k):
                        if entries[j] == entry:
                            return False
                    low, high = min(low, entry), max(high, entry + 1)
            first[i + 1], last[i + 1] = min(first[i + 1], low), max(last[i + 1], high)
    return True


@kernel
def sizes_of_derivations(
    first_edge: IntArray, tails: IntArray, first_entry: IntArray
) -> tuple[int, int]:
    """Return the maximum numbers of entries and of hyperedges in a derivation of the last item."""
    n = len(first_edge) - 1
    n_entries, n_edges = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    for i in range(n):
        for e in range(first_edge[i], first_edge[i + 1]):
            a, b = tails[2 * e], tails[2 * e + 1]
            entries = n_entries[a] + n_entries[b] + first_entry[e + 1] - first_entry[e]
            n_entries[i + 1] = max(n_entries[i + 1], min(entries, MAX_SIZE))
            n_edges[i + 1] = max(n_edges[i + 1], min(n_edges[a] + n_edges[b] + 1, MAX_SIZE))
    return n_entries[n], n_edges[n]
