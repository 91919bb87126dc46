"""An order of the nodes of a network in which messages converge fast.

In each pass, messages travel along the order, forward and back. The node with the fewest remaining
neighbours comes first (Matula & Beck 1983): trees attached to the cycles of a network are then
passed once on the way to the cycles and back. Ties are broken by breadth-first order, from a node
of few tables and with nodes of few tables first (Cuthill & McKee 1969). The order of declaration
takes up to four times as many passes, breadth-first order alone twice as many.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from lpsmap_core import kernel, leaf
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
    offsets, when = offsets_of(np.bincount(scope, minlength=n_nodes)), np.full(n_nodes, -1)
    _remove_fewest(scope_offsets, scope, offsets, table, np.argsort(tie), key, when)
    return when


@kernel
def _remove_fewest(
    scope_offsets: IntArray,
    scope: IntArray,
    offsets: IntArray,
    table: IntArray,
    of_tie: IntArray,
    key: IntArray,
    when: IntArray,
) -> None:
    """Repeatedly remove the node with the least key, and write the order.

    Parameters
    ----------
    offsets, table
        The tables of each node.
    of_tie
        The nodes in the order of their tie-breaks.
    key
        For each node, its number of neighbours, times the number of nodes, plus the tie-break.
    """
    n, t = len(key), 0
    heap = list(np.sort(key))  # a sorted list is a heap
    while t < n:
        least = heappop(heap)
        node = of_tie[least % n]
        if key[node] != least or when[node] >= 0:
            continue  # it has fewer neighbours since, or is removed
        when[node] = t
        t += 1
        for f in table[offsets[node] : offsets[node + 1]]:
            for j in scope[scope_offsets[f] : scope_offsets[f + 1]]:
                if when[j] < 0:
                    key[j] -= n
                    heappush(heap, key[j])


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
