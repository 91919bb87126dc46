"""An order of a network's nodes in which messages soon are where they matter.

Messages travel along the order in one pass, forth and back. The node that has the fewest neighbours
left goes first (Matula & Beck 1983): what hangs on the circles of a network, as trees do, is passed
through once, on the way to them and back. Among nodes of as many neighbours, those go first that
are first by breadth, from a node of few tables on and to those of few tables (Cuthill & McKee
1969). The order of declaration takes up to four times as many passes, breadth alone twice as many.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import IntArray, offsets_of

__all__ = ["breadth_first", "fewest_first"]


def breadth_first(n_nodes: int, scope_offsets: IntArray, scope: IntArray) -> IntArray:
    """Return for each node when it is visited.

    Parameters
    ----------
    n_nodes
        How many there are.
    scope_offsets, scope
        As in `lpsmap_decode.networks.network.Network`.
    """
    degree = np.bincount(scope, minlength=n_nodes)
    places = np.argsort(scope, kind="stable")
    table = np.repeat(np.arange(len(scope_offsets) - 1), np.diff(scope_offsets))[places]
    starts = np.argsort(degree, kind="stable")
    when, queue = np.full(n_nodes, -1), np.empty(n_nodes, dtype=np.int64)
    _visit(scope_offsets, scope, degree, offsets_of(degree), table, starts, when, queue)
    return when


def fewest_first(n_nodes: int, scope_offsets: IntArray, scope: IntArray) -> IntArray:
    """Return for each node when it goes; the arguments are `breadth_first`'s."""
    tie = breadth_first(n_nodes, scope_offsets, scope)
    others = np.repeat(np.diff(scope_offsets) - 1, np.diff(scope_offsets))
    places = np.argsort(scope, kind="stable")
    table = np.repeat(np.arange(len(scope_offsets) - 1), np.diff(scope_offsets))[places]
    key = np.bincount(scope, others, n_nodes).astype(np.int64) * n_nodes + tie
    heap = np.argsort(key)  # what is sorted is a heap
    at, when = np.argsort(heap), np.full(n_nodes, -1)
    offsets = offsets_of(np.bincount(scope, minlength=n_nodes))
    _take_away(scope_offsets, scope, offsets, table, key, heap, at, when)
    return when


@leaf
def _take_away(
    scope_offsets: IntArray,
    scope: IntArray,
    offsets: IntArray,
    table: IntArray,
    key: IntArray,
    heap: IntArray,
    at: IntArray,
    when: IntArray,
) -> None:
    """Write when nodes go, of which the one with the least key is the next.

    Parameters
    ----------
    offsets, table
        The tables of one node after the other.
    key
        For each node the number of its neighbours, times that of all nodes, plus what breaks ties.
    heap, at
        Nodes as a binary heap by their keys, and where in it each is.
    """
    n = len(heap)
    for t in range(n):
        node, left = heap[0], n - 1 - t
        when[node] = t
        _sink(heap[left], left, key, heap, at)
        for f in table[offsets[node] : offsets[node + 1]]:
            for j in scope[scope_offsets[f] : scope_offsets[f + 1]]:
                if when[j] < 0:
                    key[j] -= n
                    _rise(j, key, heap, at)


@leaf
def _sink(node: int, size: int, key: IntArray, heap: IntArray, at: IntArray) -> None:
    """Put a node at the top of a heap, and let it sink to its place."""
    p = 0
    while 2 * p + 1 < size:
        child = 2 * p + 1
        if child + 1 < size and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[child]] >= key[node]:
            break
        heap[p], at[heap[child]] = heap[child], p
        p = child
    heap[p], at[node] = node, p


@leaf
def _rise(node: int, key: IntArray, heap: IntArray, at: IntArray) -> None:
    """Let a node rise in a heap whose key became less."""
    p = at[node]
    while p > 0 and key[heap[(p - 1) // 2]] > key[node]:
        heap[p], at[heap[(p - 1) // 2]] = heap[(p - 1) // 2], p
        p = (p - 1) // 2
    heap[p], at[node] = node, p


@leaf
def _visit(
    scope_offsets: IntArray,
    scope: IntArray,
    degree: IntArray,
    offsets: IntArray,
    table: IntArray,
    starts: IntArray,
    when: IntArray,
    queue: IntArray,
) -> None:
    """Write when nodes are visited; `table` has the tables of one node after the other."""
    n = 0
    for start in starts:
        if when[start] >= 0:
            continue
        when[start], queue[n] = n, start
        done, n = n, n + 1
        while done < n:
            i, first = queue[done], n
            done += 1
            for f in table[offsets[i] : offsets[i + 1]]:
                for j in scope[scope_offsets[f] : scope_offsets[f + 1]]:
                    if when[j] >= 0:
                        continue
                    at = n  # before those of more tables
                    while at > first and degree[queue[at - 1]] > degree[j]:
                        queue[at] = queue[at - 1]
                        at -= 1
                    queue[at], when[j] = j, n
                    n += 1
    for t in range(n):
        when[queue[t]] = t
