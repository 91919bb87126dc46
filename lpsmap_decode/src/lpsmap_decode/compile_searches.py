"""Calls of all kernels of the searches, on small inputs, for ``lpsmap compile``.

Which kernels a search needs depends on the graph and on its time. Therefore each is called here, in
the way of the search that it belongs to.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.api import offsets_of
from lpsmap_decode.counts.simplex import (
    CountProgram,
    best_vertex,
    fits,
    new_tableau,
    next_vertex,
    vertex_bound,
)
from lpsmap_decode.heuristics.propagation import (
    OPEN,
    fix_all,
    new_domain,
    probe,
    propagate,
    try_value,
    undo,
)
from lpsmap_decode.heuristics.rows import Rows
from lpsmap_decode.heuristics.tree_search import complete
from lpsmap_decode.networks.blocks import block_order, improve_block
from lpsmap_decode.networks.bounds import tighten
from lpsmap_decode.networks.cycles import no_triplets, subtract_shares, triplets_of
from lpsmap_decode.networks.elimination import eliminate, elimination_order, neighbours_of
from lpsmap_decode.networks.messages import finite_scores, new_shares
from lpsmap_decode.networks.moves import tabu_search
from lpsmap_decode.networks.network import TableScores, build_network

__all__ = ["call_kernels"]


def call_kernels() -> None:
    """Call the kernels that searches of tables, of count constraints and of rows may need."""
    _search_network()
    _search_counts()
    _search_rows()


def _search_network() -> None:
    """Bound, eliminate and improve a triangle of nodes with two states."""
    scope = np.array([0, 1, 1, 2, 0, 2])
    network = build_network(np.full(3, 2), np.arange(0, 7, 2), scope)
    scores = TableScores(np.zeros(6), np.arange(12.0), network.table_offsets[:-1])
    given, _ = finite_scores(network, scores)
    chosen, order = np.zeros(3, dtype=np.int64), elimination_order(network, np.inf).nodes
    eliminate(
        network.n_states,
        network.first_state,
        network.scope_offsets,
        network.scope,
        network.table_offsets,
        *scores,
        order,
        chosen,
    )
    found = triplets_of(network)
    assert found is not None  # the triangle is one
    for triplets in (no_triplets(), found[1]):
        own = np.zeros(int(triplets.offsets[-1]))
        subtract_shares(network, triplets, own, given.entries)
        shares, limits = new_shares(network), (-np.inf, -np.inf, 1, 0.0)
        tighten(network, triplets, given, shares, own, *limits, chosen)
    tabu_search(network, given, chosen, 1)
    block = block_order(network.n_states, neighbours_of(network), np.ones(3), 8.0)
    improve_block(network, given, block, chosen)


def _search_counts() -> None:
    """Find the best vertex where one of two variables is on."""
    one, begin = np.ones(1), np.zeros(1, dtype=np.int64)
    program = CountProgram(
        eta=np.array([1.0, 2.0]),
        first=0,
        variable=np.arange(2),
        negated=np.zeros(2, dtype=np.bool_),
        begin=begin,
        end=begin + 2,
        low=one,
        high=one,
    )
    x, y = np.zeros(2), np.zeros(1)
    best_vertex(program, x, y)
    fits(program, x)
    next_vertex(program, new_tableau(program), y)
    vertex_bound(program, y, np.empty(2))


def _search_rows() -> None:
    """Complete an assignment where one of two columns is on; the last row is the objective."""
    column, ones = np.array([0, 1, 0, 1]), np.ones(4)
    rows = Rows(
        first=np.arange(0, 5, 2),
        column=column,
        coefficient=ones,
        low=np.array([1.0, -np.inf]),
        high=np.array([1.0, np.inf]),
        slack=np.zeros(2),
        first_of_column=offsets_of(np.full(2, 2)),
        row=np.array([0, 1, 0, 1]),
        coefficient_of_column=ones,
    )
    domain, unknown = new_domain(rows), np.full(2, OPEN, dtype=np.int8)
    fix_all(rows, domain, unknown)
    probe(rows, domain)
    propagate(rows, domain)
    try_value(rows, domain, 0, 1)
    undo(rows, domain, 0)
    preferred, weight = np.zeros(2, dtype=np.int8), np.ones(2)
    complete(rows, domain, np.arange(2), preferred, weight, False, 1, 0.0, unknown)
