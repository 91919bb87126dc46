"""The best assignment of a network by variable elimination.

The tables over a node are joined, and maximised over its states for every choice of the others'
states; the result is a table that replaces them. Backtracking, every node takes its best state
(nonserial dynamic programming, Bertele & Brioschi 1972; bucket elimination, Dechter 1999). The
number of steps is the number of entries of the joined tables, which depends on the order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_decode.networks.network import TableNetwork
from lpsmap_dynamic import EliminationOrder, cheapest_order

__all__ = ["MAX_NODES", "MAX_STATES", "eliminate", "elimination_order", "neighbours_of"]

Bytes = npt.NDArray[np.uint8]

MAX_NODES = 5_000
"""Maximum number of nodes, since adjacency is a square matrix."""

MAX_STATES = 256
"""Maximum number of states of a node that can be eliminated."""

INNER = 256
"""Entries of a joined table that are computed at a time."""


def elimination_order(network: TableNetwork, limit: float) -> EliminationOrder:
    """Return the cheaper of two orders; its cost is infinite if both exceed the limit.

    The cost is also infinite for more than `MAX_NODES` nodes, or if the time was up.
    """
    if len(network.n_states) > MAX_NODES:
        return EliminationOrder(np.arange(len(network.n_states)), np.inf)
    return cheapest_order(network.n_states, neighbours_of(network), limit)


def neighbours_of(network: TableNetwork) -> BoolArray:
    """Return the adjacency matrix: which nodes share a table."""
    n = len(network.n_states)
    found = np.zeros((n, n), dtype=bool)
    sizes = np.diff(network.scope_offsets)
    for back in range(1, int(sizes.max(initial=0))):
        one = np.flatnonzero(network.table[back:] == network.table[:-back])
        found[network.scope[one], network.scope[one + back]] = True
    return found | found.T


@leaf
def _bits(n_states: int) -> int:
    """Return the number of bits of a stored state, a divisor of 8."""
    if n_states > 256:
        return 0
    return 1 if n_states <= 2 else 2 if n_states <= 4 else 4 if n_states <= 16 else 8


@kernel
def _strides(
    node: int, scope: IntArray, n_states: IntArray, others: IntArray, strides: IntArray
) -> None:
    """Write the strides of a table with respect to the others' states and the node's."""
    stride = 1
    strides[:] = 0
    for p in range(len(scope) - 1, -1, -1):
        if scope[p] == node:
            strides[len(others)] = stride
        else:
            for d in range(len(others)):
                if others[d] == scope[p]:
                    strides[d] = stride
        stride *= n_states[scope[p]]


@kernel
def _join(
    own: FloatArray,
    tables: list[FloatArray],
    strides: IntArray,
    sizes: IntArray,
    best: FloatArray,
    choice: Bytes,
) -> None:
    """Maximise over a node's states for every choice of the others', and write the argmax.

    Parameters
    ----------
    own
        Scores of the states of the node.
    tables
        All tables over the node.
    strides
        (tables, others + 1); see `_strides`.
    sizes
        Numbers of states of the others.
    best, choice
        Outputs with an entry for each choice of the others' states, the last one's fastest.
    """
    n, k, m = len(tables), len(own), len(sizes)
    cut, inner = m, 1
    while cut > 0 and inner * sizes[cut - 1] <= INNER:
        cut -= 1
        inner *= sizes[cut]
    away = np.zeros((n, inner), dtype=np.int64)
    for t in range(n):
        block = 1
        for d in range(m - 1, cut - 1, -1):
            for e in range(block * sizes[d] - 1, -1, -1):
                away[t, e] = away[t, e % block] + (e // block) * strides[t, d]
            block *= sizes[d]
    state, begin = np.zeros(m, dtype=np.int64), np.zeros(n, dtype=np.int64)
    score, most, arg = np.empty(inner), np.empty(inner), np.zeros(inner, dtype=np.uint8)
    per = np.uint64(8 // _bits(k))
    for at in range(np.uint64(0), np.uint64(len(best)), np.uint64(inner)):
        for x in range(k):
            score[:] = own[x]
            for t in range(n):
                table, here = tables[t], begin[t] + x * strides[t, m]
                for e in range(inner):
                    score[e] += table[np.uint64(here + away[t, e])]
            for e in range(inner):
                better = x == 0 or score[e] > most[e]
                arg[e] = x if better else arg[e]
                most[e] = score[e] if better else most[e]
        for e in range(np.uint64(inner)):
            best[at + e] = most[e]
            here = (at + e) // per
            choice[here] |= arg[e] << np.uint8((at + e) % per * (np.uint64(8) // per))
        for d in range(cut - 1, -1, -1):
            state[d] += 1
            for t in range(n):
                begin[t] += strides[t, d]
            if state[d] < sizes[d]:
                break
            for t in range(n):
                begin[t] -= strides[t, d] * sizes[d]
            state[d] = 0
        if interrupted():
            return


@kernel
def _insert(nodes: IntArray, n: int, node: int, position: IntArray) -> None:
    """Insert a node into the first `n`; the next to eliminate comes last, and varies fastest."""
    at = n
    while at > 0 and position[nodes[at - 1]] < position[node]:
        nodes[at] = nodes[at - 1]
        at -= 1
    nodes[at] = node


@kernel
def eliminate(
    n_states: IntArray,
    first_state: IntArray,
    scope_offsets: IntArray,
    scope: IntArray,
    table_offsets: IntArray,
    states: FloatArray,
    entries: FloatArray,
    begins: IntArray,
    order: IntArray,
    chosen: IntArray,
) -> float:
    """Write the states of the best assignment, and return its score; NaN if interrupted.

    Parameters
    ----------
    n_states, first_state, scope_offsets, scope, table_offsets
        As in `TableNetwork`; nodes have at most `MAX_STATES` states.
    states, entries, begins
        Scores of states and of table entries, finite or ``-inf``, as in `TableScores`.
    order
        The elimination order of the nodes.
    chosen
        Output: one state for each node.
    """
    n = len(order)
    position, n_tables = np.empty(n, dtype=np.int64), len(scope_offsets) - 1
    for t in range(n):
        position[order[t]] = t
    scopes = [scope[scope_offsets[f] : scope_offsets[f + 1]] for f in range(n_tables)]
    ends = begins + np.diff(table_offsets)
    tables = [entries[begins[f] : ends[f]] for f in range(n_tables)]
    head, following = np.full(n, -1), np.full(n_tables + n, -1)
    for f in range(n_tables):
        soonest = position[scopes[f]].min()
        following[f], head[order[soonest]] = head[order[soonest]], f
    choices = [np.empty(0, dtype=np.uint8) for _ in range(0)]
    total, met = 0.0, np.full(n, -1)
    for t in range(n):
        node, m, mine, f = order[t], 0, [0 for _ in range(0)], head[order[t]]
        others = np.empty(n, dtype=np.int64)
        while f >= 0:
            mine.append(f)
            for j in scopes[f]:
                if j != node and met[j] != t:
                    met[j] = t
                    _insert(others, m, j, position)
                    m += 1
            f = following[f]
        others = others[:m].copy()
        sizes = n_states[others]
        size = np.prod(sizes)
        strides = np.empty((len(mine), m + 1), dtype=np.int64)
        for a in range(len(mine)):
            _strides(node, scopes[mine[a]], n_states, others, strides[a])
        best = np.empty(size)
        choice = np.zeros(size * _bits(n_states[node]) // 8 + 1, dtype=np.uint8)
        own = states[first_state[node] : first_state[node + 1]]
        _join(own, [tables[a] for a in mine], strides, sizes, best, choice)
        for a in mine:
            tables[a] = tables[a][:0].copy()  # frees the memory of joined tables
        if interrupted():
            return np.nan
        scopes.append(others)
        tables.append(best)
        choices.append(choice)
        if m == 0:
            total += best[0]
        else:
            soonest = others[m - 1]
            following[n_tables + t], head[soonest] = head[soonest], n_tables + t
    _backtrack(order, n_states, scopes[n_tables:], choices, chosen)
    return total


@kernel
def _backtrack(
    order: IntArray,
    n_states: IntArray,
    scopes: list[IntArray],
    choices: list[Bytes],
    chosen: IntArray,
) -> None:
    """Backtrack: write the best state of every node, in reverse order."""
    for t in range(len(order) - 1, -1, -1):
        entry = 0
        for j in scopes[t]:
            entry = entry * n_states[j] + chosen[j]
        bits = _bits(n_states[order[t]])
        per = 8 // bits
        chosen[order[t]] = (choices[t][entry // per] >> (entry % per * bits)) & ((1 << bits) - 1)
