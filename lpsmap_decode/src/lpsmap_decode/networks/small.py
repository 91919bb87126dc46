"""Small networks: where elimination costs less than messages, nothing need be bounded."""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, kernel
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_decode.networks.ascent import Ascent
from lpsmap_decode.networks.elimination import MOST_STATES, eliminate, least_fill
from lpsmap_decode.networks.network import Network

__all__ = ["eliminate_small", "small_orders"]

SMALL, SMALL_NODES = 1e5, 256
"""Entries of joined tables, and nodes, of networks that are eliminated at once."""


@kernel
def small_orders(
    first_node: IntArray, first_table: IntArray, network: Network, order: IntArray
) -> BoolArray:
    """Write in which order components are to be eliminated, and return which of them are small.

    None that were not looked at before an interrupt.

    Parameters
    ----------
    first_node, first_table
        For each component, where its nodes and its tables begin.
    order
        The result: numbers of nodes, counted from their component's first.
    """
    n_states, offsets, scope = network.n_states, network.scope_offsets, network.scope
    small = np.zeros(len(first_node) - 1, dtype=np.bool_)
    for c in range(len(small)):
        begin, end = first_node[c], first_node[c + 1]
        n = end - begin
        if n == 0 or n > SMALL_NODES or n_states[begin:end].max() > MOST_STATES:
            continue
        if interrupted():
            break
        neighbours = np.zeros((n, n), dtype=np.bool_)
        for f in range(first_table[c], first_table[c + 1]):
            for p in range(offsets[f], offsets[f + 1]):
                for q in range(offsets[f], p):
                    i, j = scope[p] - begin, scope[q] - begin
                    neighbours[i, j] = neighbours[j, i] = True
        order[begin:end], cost = least_fill(n_states[begin:end], neighbours, SMALL)
        small[c] = cost <= SMALL
    return small


@kernel
def eliminate_small(
    chosen: BoolArray,
    first_node: IntArray,
    first_table: IntArray,
    network: Network,
    states: FloatArray,
    entries: FloatArray,
    order: IntArray,
    found: Ascent,
) -> None:
    """Write the best assignments of some components, whose scores are their bounds.

    Of others, and of those that have none, nothing is written.

    Parameters
    ----------
    chosen
        Which components.
    first_node, first_table, order
        As for `small_orders`.
    states, entries
        Scores, finite or ``-inf``.
    """
    picks = np.zeros(len(network.n_states), dtype=np.int64)
    for c in range(len(chosen)):
        if not chosen[c]:
            continue
        begin, end, f, last = first_node[c], first_node[c + 1], first_table[c], first_table[c + 1]
        first, lo, at = (
            network.first_state[begin],
            network.scope_offsets[f],
            network.table_offsets[f],
        )
        score = eliminate(
            network.n_states[begin:end],
            network.first_state[begin : end + 1] - first,
            network.scope_offsets[f : last + 1] - lo,
            network.scope[lo : network.scope_offsets[last]] - begin,
            network.table_offsets[f : last + 1] - at,
            states[first : network.first_state[end]],
            entries[at : network.table_offsets[last]],
            order[begin:end],
            picks[begin:end],
        )
        if interrupted():
            return
        if score == -np.inf:
            continue
        found.score[c] = found.bound[c] = score
        for i in range(begin, end):
            found.marginals[network.first_state[i] + picks[i]] = 1.0
