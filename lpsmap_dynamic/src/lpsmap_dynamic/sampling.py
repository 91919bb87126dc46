"""Exact sampling of structures: derivations are sampled from the goal down."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factors, Scores, Structures, interrupted, kernel, largest_arity, leaf
from lpsmap_core.api import FloatArray, IndexArray, IntArray
from lpsmap_dynamic.edges import (
    MAX_EDGES,
    N_EDGES,
    N_ITEMS,
    Edges,
    factor_of,
    largest_of,
    switch_on,
)
from lpsmap_dynamic.inside_outside import inside


@leaf
def _draw(
    edges: Edges,
    local: FloatArray,
    uniform: FloatArray,
    stack: IntArray,
    place: IntArray,
    start: int,
    entry: IndexArray,
    value: FloatArray,
) -> int:
    """Write the entries of a random derivation; return the number of nonzeros.

    Parameters
    ----------
    edges
        The hypergraph.
    local
        The output of `inside`; the goal must have a derivation.
    uniform
        A random number in [0, 1) for every hyperedge of the derivation.
    stack, place, start, entry, value
        As in `write_derivation`.
    """
    tails = edges.tails
    stack[0] = len(edges.first_edge) - 1
    top, at, used = 1, start, 0
    while top > 0:
        top -= 1
        item = stack[top]
        chosen, below = edges.first_edge[item - 1], uniform[used]
        used += 1
        for e in range(edges.first_edge[item - 1], edges.first_edge[item]):
            if local[e] > 0.0:  # the last one, if the sum is below 1 because of rounding
                chosen = e
                if below < local[e]:
                    break
                below -= local[e]
        at = switch_on(edges, chosen, place, at, entry, value)
        for k in range(2 * chosen + 1, 2 * chosen - 1, -1):
            if tails[k] > 0:
                stack[top] = tails[k]
                top += 1
    for k in range(start, at):
        place[entry[k]] = -1
    return at - start


@kernel
def samples_of(
    rows: IntArray,
    factors: Factors,
    scores: Scores,
    n_samples: int,
    uniform: FloatArray,
    structures: Structures,
) -> None:
    """Sample structures of the factors in `rows`, with probability ``exp(score) / Z``.

    Parameters
    ----------
    rows, factors, scores
        As in a MAP kernel.
    n_samples
        The number of samples of each factor.
    uniform
        Random numbers in [0, 1): for every factor and sample, as many as the longest derivation of
        all factors has hyperedges.
    structures
        Output: sample k of factor r has index ``r * n_samples + k``, and size -1 if every structure
        is forbidden.
    """
    offsets, extra = factors.offsets, factors.additional_offsets
    start, entry, value, size = structures
    n_items = largest_of(rows, factors, N_ITEMS)
    total, rest, doubt = np.empty(n_items + 1), np.empty(n_items + 1), np.empty(n_items + 1)
    local = np.empty(largest_of(rows, factors, N_EDGES))
    deepest = largest_of(rows, factors, MAX_EDGES)
    stack = np.empty(deepest + 1, dtype=np.int64)
    n_entries = largest_arity(rows, offsets) + largest_arity(rows, extra)
    place = np.full(n_entries, -1, dtype=np.int64)
    for r in rows:
        edges, eta_u, eta_v = factor_of(r, factors, scores)
        exists = inside(edges, len(eta_u), eta_u, eta_v, total, rest, local, doubt) > -np.inf
        for s in range(r * n_samples, (r + 1) * n_samples):
            size[s] = -1
            if exists and not interrupted():
                drawn = uniform[s * deepest : (s + 1) * deepest]
                size[s] = _draw(edges, local, drawn, stack, place, start[s], entry, value)
