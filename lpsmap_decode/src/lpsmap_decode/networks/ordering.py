"""An order of the nodes of a network in which messages converge fast.

In each pass, messages travel along the order, forward and back. The node with the fewest remaining
neighbours comes first (Matula & Beck 1983): trees attached to the cycles of a network are then
passed once on the way to the cycles and back. Ties are broken by breadth-first order, from a node
of few tables and with nodes of few tables first (Cuthill & McKee 1969). The order of declaration
takes up to four times as many passes, breadth-first order alone twice as many.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import IntArray, offsets_of

__all__ = ["breadth_first", "fewest_first"]


def breadth_first(n_nodes: int, scope_offsets: IntArray, scope: IntArray) -> IntArray:
    """Return the position of each node in breadth-first order.

    Parameters
    ----------
    n_nodes
        The number of nodes.
    scope_offsets, scope
        As in `lpsmap_decode.networks.network.TableNetwork`.
    """
    degree = np.bincount(scope, minlength=n_nodes)
    places = np.argsort(scope, kind="stable")
    table = np.repeat(np.arange(len(scope_offsets) - 1), np.diff(scope_offsets))[places]
    starts = np.argsort(degree, kind="stable")
    when, queue = np.full(n_nodes, -1), np.empty(n_nodes, dtype=np.int64)
    _visit(scope_offsets, scope, degree, offsets_of(degree), table, starts, when, queue)
    return when


def fewest_first(n_nodes: int, scope_offsets: IntArray, scope: IntArray) -> IntArray:
    """Return the position of each node in the order; see `breadth_first` for the arguments."""
    tie = breadth_first(n_nodes, scope_offsets, scope)
    others = np.repeat(np.diff(scope_offsets) - 1, np.diff(scope_offsets))
    places = np.argsort(scope, kind="stable")
    table = np.repeat(np.arange(len(scope_offsets) - 1), np.diff(scope_offsets))[places]
    key = np.bincount(scope, others, n_nodes).astype(np.int64) * n_nodes + tie
    heap = np.argsort(key)  # a sorted array is a heap
    at, when = np.argsort(heap), np.full(n_nodes, -1)
    offsets = offsets_of(np.bincount(scope, minlength=n_nodes))
    _remove_fewest(scope_offsets, scope, offsets, table, key, heap, at, when)
    return when


@leaf
def _remove_fewest(
    scope_offsets: IntArray,
    scope: IntArray,
    offsets: IntArray,
    table: IntArray,
    key: IntArray,
    heap: IntArray,
    at: IntArray,
    when: IntArray,
) -> None:
    """Repeatedly remove the node with the least key, and write the order.

    Parameters
    ----------
    offsets, table
        The tables of each node.
    key
        For each node, its number of neighbours, times the number of nodes, plus the tie-break.
    heap, at
        A binary heap of nodes by key, and the position of each node in it.
    """
    n = len(heap)
    for t in range(n):
        node, left = heap[0], n - 1 - t
        when[node] = t
        _sift_down(heap[left], left, key, heap, at)
        for f in table[offsets[node] : offsets[node + 1]]:
            for j in scope[scope_offsets[f] : scope_offsets[f + 1]]:
                if when[j] < 0:
                    key[j] -= n
                    _sift_up(j, key, heap, at)


@leaf
def _sift_down(node: int, size: int, key: IntArray, heap: IntArray, at: IntArray) -> None:
    """Put a node at the top of a heap, and sift it down."""
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
def _sift_up(node: int, key: IntArray, heap: IntArray, at: IntArray) -> None:
    """Sift up a node whose key has decreased."""
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
    """Write the breadth-first order; `offsets` and `table` are the tables of each node."""
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
                    at = n  # before nodes of more tables
                    while at > first and degree[queue[at - 1]] > degree[j]:
                        queue[at] = queue[at - 1]
                        at -= 1
                    queue[at], when[j] = j, n
                    n += 1
    for t in range(n):
        when[queue[t]] = t
