"""An order of a network's nodes in which neighbours are near each other.

Messages travel along the order in one pass, forth and back. Breadth first, from a node of few
tables on and to those of few tables first (Cuthill & McKee 1969), they take down to half of the
passes that the order of declaration takes.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.arrays import IntArray
from lpsmap_core.kernels.compile import leaf
from lpsmap_core.layout.ragged import offsets_of

__all__ = ["breadth_first"]


def breadth_first(n_nodes: int, scope_offsets: IntArray, scope: IntArray) -> IntArray:
    """Return for each node when it is visited.

    Parameters
    ----------
    n_nodes
        How many there are.
    scope_offsets, scope
        As in `lpsmap_core.layout.network.Network`.
    """
    degree = np.bincount(scope, minlength=n_nodes)
    places = np.argsort(scope, kind="stable")
    table = np.repeat(np.arange(len(scope_offsets) - 1), np.diff(scope_offsets))[places]
    starts = np.argsort(degree, kind="stable")
    when, queue = np.full(n_nodes, -1), np.empty(n_nodes, dtype=np.int64)
    _visit(scope_offsets, scope, degree, offsets_of(degree), table, starts, when, queue)
    return when


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
