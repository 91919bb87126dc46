"""A hypergraph as one array of integers, which is how kernels get it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factors, kernel, leaf
from lpsmap_core.api import FloatArray, IndexArray, IntArray

__all__ = [
    "DEPTH",
    "HEADER",
    "ITEMS",
    "LOOK_PERIOD",
    "NONZEROS",
    "Edges",
    "edges_of",
    "encoded",
    "largest_of",
    "own_score",
    "switch_on",
]

ITEMS, NONZEROS, DEPTH, HEADER = 0, 3, 4, 5
"""Numbers in front: items, hyperedges, entries, the most nonzeros of a structure, and the most
hyperedges of a derivation; then the arrays."""

LOOK_PERIOD = 10_000
"""A pass over more hyperedges than this looks now and then at whether it is to go on."""


class Edges(NamedTuple):
    """The hyperedges of one factor, sorted by their heads; items are in topological order.

    Attributes
    ----------
    first_edge
        (I + 1,) item i, counted from 1, is the head of the hyperedges ``first_edge[i - 1]`` to
        ``first_edge[i]``. The last item is the goal.
    tails
        (2 E,) two for every hyperedge: items, or 0 for none, which every table has a neutral number
        for.
    first_entry
        (E + 1,) hyperedge e switches on ``entries[first_entry[e] : first_entry[e + 1]]``.
    entries
        k for a slot, arity + j for an additional.
    """

    first_edge: IntArray
    tails: IntArray
    first_entry: IntArray
    entries: IntArray


def encoded(edges: Edges, most_nonzeros: int, most_edges: int) -> IntArray:
    """Return a hypergraph as one array."""
    sizes = len(edges.first_edge) - 1, len(edges.first_entry) - 1, len(edges.entries)
    return np.concatenate([[*sizes, most_nonzeros, most_edges], *edges]).astype(
        np.int64, copy=False
    )


@kernel
def edges_of(integers: IntArray, begin: int) -> Edges:
    """Return views of integers, those of a hypergraph that begins at some place."""
    n_items, n_edges, n_entries = integers[begin], integers[begin + 1], integers[begin + 2]
    a = begin + HEADER
    b = a + n_items + 1
    c = b + 2 * n_edges
    d = c + n_edges + 1
    return Edges(integers[a:b], integers[b:c], integers[c:d], integers[d : d + n_entries])


@leaf
def largest_of(rows: IntArray, factors: Factors, word: int) -> int:
    """Return the largest number at a place of the headers of some factors, 0 for none."""
    largest = 0
    for r in rows:
        largest = max(largest, factors.integers[factors.integer_ranges[r, 0] + word])
    return largest


@leaf
def own_score(edges: Edges, e: int, arity: int, eta_u: FloatArray, eta_v: FloatArray) -> float:
    """Return the summed scores of what a hyperedge switches on."""
    score = 0.0
    for k in range(edges.first_entry[e], edges.first_entry[e + 1]):
        entry = edges.entries[k]
        score += eta_u[entry] if entry < arity else eta_v[entry - arity]
    return score


@leaf
def switch_on(
    edges: Edges, e: int, place: IntArray, at: int, entry: IndexArray, value: FloatArray
) -> int:
    """Add what a hyperedge switches on to a sparse vector, and return where it ends.

    Parameters
    ----------
    edges, e
        The hyperedge.
    place
        For every entry where it stands in the vector, or -1.
    at
        Where the vector ended.
    entry, value
        The vector.
    """
    for k in range(edges.first_entry[e], edges.first_entry[e + 1]):
        x = edges.entries[k]
        if place[x] < 0:
            place[x], entry[at], value[at] = at, x, 0.0
            at += 1
        value[place[x]] += 1.0
    return at
