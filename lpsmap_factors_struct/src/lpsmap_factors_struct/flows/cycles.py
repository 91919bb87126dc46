"""Cycles of a chain's flow, which can be sent around without a change of any marginal.

Where scores tie, solutions can differ in their flows alone. Of these the ones without cycles have
the fewest edges; their paths are affinely independent in the variables.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import ByteArray, FloatArray, IntArray
from lpsmap_factors_struct.flows.chain import DIMENSION, ELIMINATED, Chain, sizes

__all__ = ["cancel_cycles"]

ZERO = np.uint64(0)


@leaf
def cancel_cycles(chain: Chain) -> None:
    """Send flow around every cycle of the face's edges until one of them has none, and leaves."""
    flow, n, (_, _, n_edges) = chain.flow, chain.n_states, sizes(chain)
    if n == 1:
        return
    for begin in range(ZERO, n_edges, np.uint64(n * n)):
        stop = begin + np.uint64(n * n)
        left = _cancel_between(flow.e[begin:stop], flow.on[begin:stop], n, chain.work.edge)
        if left > 0:
            flow.header[ELIMINATED] = 0.0
            flow.header[DIMENSION] -= left


@leaf
def _cancel_between(e: FloatArray, on: ByteArray, n: int, parent: IntArray) -> int:
    """Cancel cycles between two layers; returns how many edges left.

    Edges grow a forest, whose vertices are the nodes of the first layer and, behind these, those of
    the second. Each that would close a cycle is exchanged for the one that is empty first.
    """
    left = 0
    parent[: 2 * n] = -1
    for j in range(n):
        for i in range(n):
            if on[j * n + i] == 0:
                continue
            _make_root(i, parent)
            top = n + j
            while parent[top] >= 0:
                top = parent[top]
            if top != i:
                parent[i] = n + j
                continue
            leaving = _send_around(e, i, n + j, n, parent)
            left += 1
            on[leaving] = 0
            if leaving != j * n + i:
                _cut(leaving, n, parent)
                _make_root(n + j, parent)
                parent[n + j] = i
    return left


@leaf
def _make_root(vertex: int, parent: IntArray) -> None:
    """Turn the edges from a vertex to the root of its tree around."""
    before = -1
    while vertex >= 0:
        following = parent[vertex]
        parent[vertex] = before
        before, vertex = vertex, following


@leaf
def _send_around(e: FloatArray, root: int, end: int, n: int, parent: IntArray) -> int:
    """Take flow from the edge between a root and a vertex of its tree; returns an empty edge.

    On the way up, every other edge gives as much, and those between take it.
    """
    leaving = _edge(root, end, n)
    vertex, gives = end, False
    while vertex != root:
        k = _edge(vertex, parent[vertex], n)
        if gives and e[k] < e[leaving]:
            leaving = k
        vertex, gives = parent[vertex], not gives
    flow = e[leaving]
    e[_edge(root, end, n)] -= flow
    vertex, gives = end, False
    while vertex != root:
        e[_edge(vertex, parent[vertex], n)] += -flow if gives else flow
        vertex, gives = parent[vertex], not gives
    e[leaving] = 0.0
    return leaving


@leaf
def _edge(one: int, other: int, n: int) -> int:
    """Return the edge between two vertices of different layers."""
    return (max(one, other) - n) * n + min(one, other)


@leaf
def _cut(edge: int, n: int, parent: IntArray) -> None:
    """Take an edge from the forest."""
    one, other = edge % n, n + edge // n
    if parent[one] == other:
        parent[one] = -1
    else:
        parent[other] = -1
