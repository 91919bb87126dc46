"""The best derivation of the goal: a pass over the hyperedges in max-plus algebra."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factors, Scores, Structures, interrupted, kernel, largest_arity, leaf
from lpsmap_core.api import FloatArray, IndexArray, IntArray
from lpsmap_dynamic.edges import (
    MAX_EDGES,
    N_ITEMS,
    POLL_PERIOD,
    Edges,
    edge_score,
    factor_of,
    largest_of,
    switch_on,
)


class RankedDerivations(NamedTuple):
    """The best derivations of every item: rank j of item i is number ``i * k + j``.

    Attributes
    ----------
    score
        The scores, the best first.
    edge, left, right
        The hyperedge, and the ranks of the derivations of its two tails; no ranks if k is 1.
    length
        The number of derivations of each item; empty if k is 1.
    """

    score: FloatArray
    edge: IntArray
    left: IntArray
    right: IntArray
    length: IntArray


@leaf
def best_derivation(
    edges: Edges,
    arity: int,
    eta_u: FloatArray,
    eta_v: FloatArray,
    best: FloatArray,
    choice: IntArray,
) -> float:
    """Find the best derivation of every item, and return the score of the goal.

    Knuth's (1977) generalisation of best paths, in topological order (Huang 2008); ties go to the
    hyperedge declared first.

    Parameters
    ----------
    edges
        The hypergraph.
    arity, eta_u, eta_v
        The scores of the factor.
    best, choice
        Outputs for I + 1 items: scores, and indices of hyperedges.
    """
    first_edge, tails = edges.first_edge, edges.tails
    best[0] = 0.0
    poll_at, n_items = POLL_PERIOD, len(first_edge) - 1
    for i in range(n_items):
        most, chosen = -np.inf, first_edge[i]
        for e in range(first_edge[i], first_edge[i + 1]):
            score = edge_score(edges, e, arity, eta_u, eta_v)
            score += best[tails[2 * e]] + best[tails[2 * e + 1]]
            if score > most:
                most, chosen = score, e
        best[i + 1], choice[i + 1] = most, chosen
        if first_edge[i + 1] > poll_at:
            poll_at += POLL_PERIOD
            if interrupted():
                for j in range(i, n_items):
                    choice[j + 1] = first_edge[j]
                break
    return best[n_items]  # type: ignore[no-any-return]


@leaf
def write_derivation(
    edges: Edges,
    k: int,
    rank: int,
    ranked: RankedDerivations,
    stack: IntArray,
    place: IntArray,
    start: int,
    entry: IndexArray,
    value: FloatArray,
) -> int:
    """Write the entries of the goal's derivation of a rank; return the number of nonzeros.

    Parameters
    ----------
    edges, k, rank, ranked
        The hypergraph, the number of ranks, the rank, and the derivations of all items.
    stack
        Workspace for one more item than a derivation has hyperedges.
    place
        Workspace: -1 for every entry, on entry and on return.
    start, entry, value
        Outputs: the nonzeros.
    """
    tails = edges.tails
    stack[0] = (len(edges.first_edge) - 1) * k + rank
    top, at = 1, start
    while top > 0:
        top -= 1
        number = stack[top]
        e = ranked.edge[number]
        at = switch_on(edges, e, place, at, entry, value)
        left, right = 0, 0
        if k > 1:
            left, right = ranked.left[number], ranked.right[number]
        for tail, below in ((tails[2 * e + 1], right), (tails[2 * e], left)):
            if tail > 0:
                stack[top] = tail * k + below
                top += 1
    for j in range(start, at):
        place[entry[j]] = -1
    return at - start


@kernel
def best_derivations(
    rows: IntArray, factors: Factors, scores: Scores, structures: Structures
) -> None:
    """Find the best structure of every factor in `rows`: the MAP kernel of all hypergraphs."""
    offsets, extra = factors.offsets, factors.additional_offsets
    start, entry, value, size = structures
    n_items, deepest = largest_of(rows, factors, N_ITEMS), largest_of(rows, factors, MAX_EDGES)
    best, choice = np.empty(n_items + 1), np.empty(n_items + 1, dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    ranked = RankedDerivations(best, choice, none, none, none)
    stack = np.empty(deepest + 1, dtype=np.int64)
    n_entries = largest_arity(rows, offsets) + largest_arity(rows, extra)
    place = np.full(n_entries, -1, dtype=np.int64)
    for r in rows:
        edges, eta_u, eta_v = factor_of(r, factors, scores)
        best_derivation(edges, len(eta_u), eta_u, eta_v, best, choice)
        size[r] = write_derivation(edges, 1, 0, ranked, stack, place, start[r], entry, value)
