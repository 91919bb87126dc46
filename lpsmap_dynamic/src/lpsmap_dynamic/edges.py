"""The encoding of a hypergraph as one array of integers, for kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factors, Scores, kernel, leaf
from lpsmap_core.api import FloatArray, IndexArray, IntArray

N_ITEMS, N_EDGES, N_ENTRIES, MAX_NONZEROS, MAX_EDGES = range(5)
"""Positions in the header: the numbers of items, hyperedges and entries, and the maximum numbers of
nonzeros of a structure and of hyperedges of a derivation."""

HEADER_LENGTH = 5
"""The arrays follow the header."""

POLL_PERIOD = 10_000
"""Number of hyperedges, or of sums of scores, between two checks of a pass for interrupts."""


class Edges(NamedTuple):
    """The hyperedges of one factor, sorted by their heads; items are in topological order.

    Attributes
    ----------
    first_edge
        (I + 1,) item i, counted from 1, is the head of the hyperedges ``first_edge[i - 1]`` to
        ``first_edge[i] - 1``. The last item is the goal.
    tails
        (2 E,) two items for every hyperedge, 0 for a missing tail; arrays over items have a neutral
        value at 0.
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
    """Return views of the hypergraph that begins at a position of an array."""
    n_items, n_edges = integers[begin + N_ITEMS], integers[begin + N_EDGES]
    n_entries = integers[begin + N_ENTRIES]
    a = begin + HEADER_LENGTH
    b = a + n_items + 1
    c = b + 2 * n_edges
    d = c + n_edges + 1
    return Edges(integers[a:b], integers[b:c], integers[c:d], integers[d : d + n_entries])


@kernel
def factor_of(r: int, factors: Factors, scores: Scores) -> tuple[Edges, FloatArray, FloatArray]:
    """Return the hypergraph of a factor, and views of the scores of its slots and additionals."""
    offsets, extra = factors.offsets, factors.additional_offsets
    eta_u = scores.eta_u[offsets[r] : offsets[r + 1]]
    eta_v = scores.eta_v[extra[r] : extra[r + 1]]
    return edges_of(factors.integers, factors.integer_ranges[r, 0]), eta_u, eta_v


@leaf
def largest_of(rows: IntArray, factors: Factors, word: int) -> int:
    """Return the maximum of a number of the header over factors, 0 for no factors."""
    largest = 0
    for r in rows:
        largest = max(largest, factors.integers[factors.integer_ranges[r, 0] + word])
    return largest


@leaf
def edge_score(edges: Edges, e: int, arity: int, eta_u: FloatArray, eta_v: FloatArray) -> float:
    """Return the total score of the entries of a hyperedge."""
    score = 0.0
    for k in range(edges.first_entry[e], edges.first_entry[e + 1]):
        entry = edges.entries[k]
        score += eta_u[entry] if entry < arity else eta_v[entry - arity]
    return score


@leaf
def switch_on(
    edges: Edges, e: int, place: IntArray, at: int, entry: IndexArray, value: FloatArray
) -> int:
    """Add the entries of a hyperedge to a sparse vector, and return the new end of the vector.

    Parameters
    ----------
    edges, e
        The hyperedge.
    place
        For every entry, its position in the vector, or -1.
    at
        The end of the vector.
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
