"""Orders in which the nodes of a graph are eliminated.

Eliminating a node connects its neighbours. Where tables over nodes are joined, the cost of an order
is the number of entries of all joined tables, each over a node and its remaining neighbours. It
depends on the order: minimum fill, or from one end of the graph to the other (Cuthill & McKee
1969), whichever is cheaper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel
from lpsmap_core.api import BoolArray, IntArray


class EliminationOrder(NamedTuple):
    """An elimination order."""

    nodes: IntArray
    cost: float
    """Total entries of all joined tables; infinite above the limit."""


def cheapest_order(n_states: IntArray, neighbours: BoolArray, limit: float) -> EliminationOrder:
    """Return the cheaper of two orders; its cost is infinite if both exceed the limit.

    Parameters
    ----------
    n_states
        (N,) numbers of states of the nodes.
    neighbours
        (N, N) the symmetric adjacency matrix, which is overwritten.
    limit
        The maximum cost.
    """
    if not len(n_states):
        return EliminationOrder(np.empty(0, dtype=np.int64), 0.0)
    by_fill, cost = minimum_fill(n_states, neighbours.copy(), limit)
    across = _peripheral_order(neighbours, neighbours.sum(axis=1))
    other = _cost(n_states, neighbours, across, min(cost, limit))
    return EliminationOrder(across, other) if other < cost else EliminationOrder(by_fill, cost)


@kernel
def _live_neighbours(node: int, neighbours: BoolArray, gone: BoolArray, live: IntArray) -> int:
    """Write the neighbours of a node that are not yet eliminated; return their number."""
    n = 0
    for j in range(len(gone)):
        if neighbours[node, j] and not gone[j]:
            live[n] = j
            n += 1
    return n


@kernel
def minimum_fill(n_states: IntArray, neighbours: BoolArray, limit: float) -> tuple[IntArray, float]:
    """Return the minimum-fill order and its cost.

    The cost is infinite above the limit, or if interrupted. Overwrites `neighbours`.
    """
    n = len(n_states)
    gone, stale = np.zeros(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
    near, fill, order = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    cost = 0.0
    for t in range(n):
        node = -1
        for i in range(n):
            if gone[i]:
                continue
            if stale[i]:
                k, fill[i], stale[i] = _live_neighbours(i, neighbours, gone, near), 0, False
                for a in range(k):
                    for b in range(a):
                        fill[i] += not neighbours[near[a], near[b]]
                if interrupted():
                    return order, np.inf
            if node < 0 or fill[i] < fill[node]:
                node = i
        k, size = _live_neighbours(node, neighbours, gone, near), float(n_states[node])
        for j in near[:k]:
            size *= n_states[j]
        cost += size
        if cost > limit:
            return order, np.inf
        order[t], gone[node] = node, True
        for a in range(k):
            if interrupted():
                return order, np.inf
            stale[near[a]] = True
            for b in range(a):
                if neighbours[near[a], near[b]]:
                    continue
                neighbours[near[a], near[b]] = neighbours[near[b], near[a]] = True
                one, other = neighbours[near[a]], neighbours[near[b]]
                for j in range(n):
                    stale[j] |= one[j] & other[j]
    return order, cost


@kernel
def _peripheral_order(neighbours: BoolArray, degree: IntArray) -> IntArray:
    """Return the nodes by their distance from a peripheral node, those of low degree first."""
    n = len(neighbours)
    order, start = np.empty(n, dtype=np.int64), 0
    for _ in range(3):  # from any node, from the farthest node, and from the opposite end
        seen, n_seen, head = np.zeros(n, dtype=np.bool_), 0, 0
        for root in range(-1, n):
            root = start if root < 0 else root
            if seen[root]:
                continue
            order[n_seen], seen[root] = root, True
            n_seen += 1
            while head < n_seen:
                node, fresh = order[head], n_seen
                head += 1
                for j in range(n):
                    if neighbours[node, j] and not seen[j]:
                        seen[j] = True
                        at = n_seen
                        while at > fresh and degree[order[at - 1]] > degree[j]:
                            order[at] = order[at - 1]
                            at -= 1
                        order[at] = j
                        n_seen += 1
        start = order[n - 1]
    return order


@kernel
def _cost(n_states: IntArray, neighbours: BoolArray, order: IntArray, limit: float) -> float:
    """Return the cost of an order; infinite above the limit, or if interrupted.

    Overwrites `neighbours`.
    """
    n, cost = len(order), 0.0
    gone, near = np.zeros(n, dtype=np.bool_), np.empty(n, np.int64)
    for node in order:
        k, size = _live_neighbours(node, neighbours, gone, near), float(n_states[node])
        for j in near[:k]:
            size *= n_states[j]
        cost += size
        if cost > limit or interrupted():
            return np.inf
        gone[node] = True
        for a in range(k):
            for b in range(a):
                neighbours[near[a], near[b]] = neighbours[near[b], near[a]] = True
    return cost
