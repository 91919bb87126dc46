"""Small networks, for which elimination is cheaper than messages."""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, kernel
from lpsmap_core.api import BoolArray, IntArray
from lpsmap_decode.networks.ascent import AscentResult
from lpsmap_decode.networks.elimination import MAX_STATES, eliminate
from lpsmap_decode.networks.network import TableNetwork, TableScores
from lpsmap_dynamic import minimum_fill

__all__ = ["eliminate_small", "small_orders"]

SMALL_COST, SMALL_NODES = 1e5, 256
"""Maximum entries of joined tables, and maximum nodes, of networks that are eliminated."""


@kernel
def small_orders(
    first_node: IntArray, first_table: IntArray, network: TableNetwork, order: IntArray
) -> BoolArray:
    """Write elimination orders of components, and return which components are small.

    After an interrupt, the remaining components count as not small.

    Parameters
    ----------
    first_node, first_table
        For each component, where its nodes and its tables begin.
    order
        Output: nodes, counted from the first of their component.
    """
    n_states, offsets, scope = network.n_states, network.scope_offsets, network.scope
    small = np.zeros(len(first_node) - 1, dtype=np.bool_)
    for c in range(len(small)):
        begin, end = first_node[c], first_node[c + 1]
        n, most = end - begin, 0
        for i in range(begin, end):
            most = max(most, n_states[i])
        if n == 0 or n > SMALL_NODES or most > MAX_STATES:
            continue
        if interrupted():
            break
        neighbours = np.zeros((n, n), dtype=np.bool_)
        for f in range(first_table[c], first_table[c + 1]):
            for p in range(offsets[f], offsets[f + 1]):
                for q in range(offsets[f], p):
                    i, j = scope[p] - begin, scope[q] - begin
                    neighbours[i, j] = neighbours[j, i] = True
        found, cost = minimum_fill(n_states[begin:end], neighbours, SMALL_COST)
        for i in range(n):
            order[begin + i] = found[i]
        small[c] = cost <= SMALL_COST
    return small


@kernel
def eliminate_small(
    chosen: BoolArray,
    first_node: IntArray,
    first_table: IntArray,
    network: TableNetwork,
    scores: TableScores,
    order: IntArray,
    found: AscentResult,
) -> None:
    """Write the best assignments of components; their scores are also their bounds.

    Nothing is written for other components or infeasible ones.

    Parameters
    ----------
    chosen
        Which components to solve.
    first_node, first_table, order
        As in `small_orders`.
    scores
        Scores, finite or ``-inf``.
    """
    picks = np.zeros(len(network.n_states), dtype=np.int64)
    for c in range(len(chosen)):
        if not chosen[c]:
            continue
        begin, end, f, last = first_node[c], first_node[c + 1], first_table[c], first_table[c + 1]
        first, lo = network.first_state[begin], network.scope_offsets[f]
        score = eliminate(
            network.n_states[begin:end],
            network.first_state[begin : end + 1] - first,
            network.scope_offsets[f : last + 1] - lo,
            network.scope[lo : network.scope_offsets[last]] - begin,
            network.table_offsets[f : last + 1],
            scores.states[first : network.first_state[end]],
            scores.entries,
            scores.tables[f:last],
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
