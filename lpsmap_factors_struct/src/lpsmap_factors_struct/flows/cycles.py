"""Cancellation of the cycles of a chain's flow.

Flow around a cycle changes no marginal. With tied scores, solutions can differ in their flows
alone. Those without cycles have the fewest edges, and their paths are affinely independent in the
variables.
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
    """Send flow around every cycle of the face's edges until an edge is empty, and remove it."""
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
    """Cancel cycles between two layers; returns the number of edges that were removed.

    The edges are added to a forest one by one. Its vertices are the nodes of the first layer,
    followed by those of the second. If an edge closes a cycle, the first edge of the cycle to
    become empty is removed.
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
    """Make a vertex the root of its tree, by reversing the edges to the previous root."""
    before = -1
    while vertex >= 0:
        following = parent[vertex]
        parent[vertex] = before
        before, vertex = vertex, following


@leaf
def _send_around(e: FloatArray, root: int, end: int, n: int, parent: IntArray) -> int:
    """Move flow around the cycle of the edge between a root and a vertex; returns an empty edge.

    Along the cycle, edges lose and gain the same flow in turn.
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
    """Remove an edge from the forest."""
    one, other = edge % n, n + edge // n
    if parent[one] == other:
        parent[one] = -1
    else:
        parent[other] = -1
