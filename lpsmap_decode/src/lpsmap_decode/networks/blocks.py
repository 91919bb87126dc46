"""Blocks of nodes that elimination solves exactly, given the states of all others.

A block is what is left of a network without a few nodes, a cutset (Dechter 2003, chapter 10): nodes
are eliminated while the joined tables are small; if all would be large, a node keeps its state.
"""

from __future__ import annotations

import math

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_decode.networks.best_states import assignment_score
from lpsmap_decode.networks.elimination import MAX_STATES, eliminate
from lpsmap_decode.networks.messages import Potentials
from lpsmap_decode.networks.network import TableNetwork

__all__ = ["block_order", "improve_block"]


@kernel
def block_order(
    n_states: IntArray, neighbours: BoolArray, weight: FloatArray, limit: float
) -> IntArray:
    """Return the nodes of a block in an order of elimination; empty if interrupted.

    Parameters
    ----------
    n_states
        Numbers of states of the nodes.
    neighbours
        The symmetric adjacency matrix, which is overwritten.
    weight
        For each node, the weight of its size if a node must keep its state: the largest does.
    limit
        The maximum entries of a joined table.
    """
    n, n_found = len(n_states), 0
    order, gone = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    near, log_states = np.empty(n, dtype=np.int64), np.log(n_states.astype(np.float64))
    size = log_states.copy()
    for i in range(n):
        for j in range(n):
            size[i] += log_states[j] if neighbours[i, j] else 0.0
    for _ in range(n):
        node, largest = -1, -1
        for i in range(n):
            if gone[i]:
                continue
            if n_states[i] <= MAX_STATES and (node < 0 or size[i] < size[node]):
                node = i
            if largest < 0 or weight[i] * size[i] > weight[largest] * size[largest]:
                largest = i
        is_solved = node >= 0 and size[node] <= math.log(limit)
        node = node if is_solved else largest
        gone[node], k = True, 0
        for j in range(n):
            if neighbours[node, j] and not gone[j]:
                near[k] = j
                size[j] -= log_states[node]
                k += 1
        if interrupted():
            return order[:0]
        if not is_solved:
            continue
        order[n_found] = node
        n_found += 1
        for a in range(k):
            i = near[a]
            for b in range(a):
                j = near[b]
                if not neighbours[i, j]:
                    neighbours[i, j] = neighbours[j, i] = True
                    size[i] += log_states[j]
                    size[j] += log_states[i]
    return order[:n_found]


@kernel
def improve_block(
    network: TableNetwork, given: Potentials, order: IntArray, chosen: IntArray
) -> float:
    """Overwrite the states of a block by the best, given the others'; return the total score.

    Parameters
    ----------
    network, given
        The network, and its scores; closed states are not chosen.
    order
        The nodes of the block in the order of their elimination.
    chosen
        The states of all nodes.
    """
    n, place_of = len(order), np.full(len(network.n_states), -1)
    n_states, first_state = np.empty(n, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    for a in range(n):
        place_of[order[a]], n_states[a] = a, network.n_states[order[a]]
        first_state[a + 1] = first_state[a] + n_states[a]
    states = np.empty(first_state[n])
    for a in range(n):
        first = network.first_state[order[a]]
        for x in range(n_states[a]):
            states[first_state[a] + x] = given.states[first + x] + given.closed[first + x]
    tables = _restricted_tables(network, given, place_of, chosen, first_state, states)
    scope_offsets, scope, table_offsets, entries = tables
    best = np.empty(n, dtype=np.int64)
    score = eliminate(
        n_states,
        first_state,
        scope_offsets,
        scope,
        table_offsets,
        states,
        entries,
        table_offsets[:-1],
        np.arange(n),
        best,
    )
    if not np.isnan(score):
        for a in range(n):
            chosen[order[a]] = best[a]
    return assignment_score(0, len(chosen), network, given, chosen)


@kernel
def _restricted_tables(
    network: TableNetwork,
    given: Potentials,
    place_of: IntArray,
    chosen: IntArray,
    first_state: IntArray,
    states: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Return the tables of several nodes of a block, given the states of all others.

    Those of one node are added to its `states`. The result has the offsets of the scopes, the
    scopes, the offsets of the tables, and their entries.
    """
    n_tables, n_places, n_entries, most = _sizes_of_tables(network, place_of)
    scope, entries = np.empty(n_places, dtype=np.int64), np.empty(n_entries)
    scope_offsets = np.zeros(n_tables + 1, dtype=np.int64)
    table_offsets = np.zeros(n_tables + 1, dtype=np.int64)
    own, strides, t = np.empty(most, np.int64), np.empty(most, np.int64), 0
    for f in range(len(network.scope_offsets) - 1):
        m, first, size = _section_of_table(f, network, given, place_of, chosen, own, strides)
        if m == 1:
            for x in range(size):
                states[first_state[own[0]] + x] += given.entries[first + x * strides[0]]
        if m <= 1:
            continue
        begin, at = table_offsets[t], scope_offsets[t]
        table_offsets[t + 1], scope_offsets[t + 1] = begin + size, at + m
        for d in range(m):
            scope[at + m - 1 - d] = own[d]
        for e in range(size):
            place, left = first, e
            for d in range(m):
                n_states = first_state[own[d] + 1] - first_state[own[d]]
                place += left % n_states * strides[d]
                left //= n_states
            entries[begin + e] = given.entries[place]
        t += 1
    return scope_offsets, scope, table_offsets, entries


@leaf
def _sizes_of_tables(network: TableNetwork, place_of: IntArray) -> tuple[int, int, int, int]:
    """Return the numbers of a block's tables of several nodes, of their places and entries.

    The last number is that of the nodes of the table with the most of them.
    """
    n_tables, n_places, n_entries, most = 0, 0, 0, 0
    for f in range(len(network.scope_offsets) - 1):
        size, m = 1, 0
        most = max(most, network.scope_offsets[f + 1] - network.scope_offsets[f])
        for p in range(network.scope_offsets[f], network.scope_offsets[f + 1]):
            if place_of[network.scope[p]] >= 0:
                size *= network.n_states[network.scope[p]]
                m += 1
        if m > 1:
            n_tables, n_places, n_entries = n_tables + 1, n_places + m, n_entries + size
    return n_tables, n_places, n_entries, most


@leaf
def _section_of_table(
    f: int,
    network: TableNetwork,
    given: Potentials,
    place_of: IntArray,
    chosen: IntArray,
    own: IntArray,
    strides: IntArray,
) -> tuple[int, int, int]:
    """Write the nodes of a table within a block, the last one first, and their strides.

    Returns their number, the first entry of the section at the states of the other nodes, and the
    section's size.
    """
    m, first, stride, size = 0, given.tables[f], 1, 1
    for p in range(network.scope_offsets[f + 1] - 1, network.scope_offsets[f] - 1, -1):
        i = network.scope[p]
        if place_of[i] >= 0:
            own[m], strides[m] = place_of[i], stride
            size *= network.n_states[i]
            m += 1
        else:
            first += stride * chosen[i]
        stride *= network.n_states[i]
    return m, first, size
