"""The k best derivations: lists of ranked derivations for every item, merged by a heap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factors, Scores, Structures, interrupted, kernel, largest_arity, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic.best_derivation import RankedDerivations, write_derivation
from lpsmap_dynamic.edges import (
    MAX_EDGES,
    N_EDGES,
    N_ITEMS,
    POLL_PERIOD,
    Edges,
    edge_score,
    factor_of,
    largest_of,
)
from lpsmap_dynamic.inside_outside import has_large, local_scores


class Heap(NamedTuple):
    """A heap of candidates for the next rank of an item."""

    score: FloatArray
    edge: IntArray
    left: IntArray
    right: IntArray


@leaf
def _better(heap: Heap, i: int, j: int) -> bool:
    """Return whether one candidate precedes another: by score, then by order of declaration."""
    if heap.score[i] != heap.score[j]:
        return bool(heap.score[i] > heap.score[j])
    if heap.edge[i] != heap.edge[j]:
        return bool(heap.edge[i] < heap.edge[j])
    if heap.left[i] != heap.left[j]:
        return bool(heap.left[i] < heap.left[j])
    return bool(heap.right[i] < heap.right[j])


@leaf
def _swap(heap: Heap, i: int, j: int) -> None:
    heap.score[i], heap.score[j] = heap.score[j], heap.score[i]
    heap.edge[i], heap.edge[j] = heap.edge[j], heap.edge[i]
    heap.left[i], heap.left[j] = heap.left[j], heap.left[i]
    heap.right[i], heap.right[j] = heap.right[j], heap.right[i]


@leaf
def _push(heap: Heap, size: int, score: float, edge: int, left: int, right: int) -> int:
    """Push a candidate, unless it is forbidden; return the size of the heap."""
    if not score > -np.inf:
        return size
    heap.score[size], heap.edge[size] = score, edge
    heap.left[size], heap.right[size] = left, right
    i = size
    while i > 0 and _better(heap, i, (i - 1) // 2):
        _swap(heap, i, (i - 1) // 2)
        i = (i - 1) // 2
    return size + 1


@leaf
def _pop(heap: Heap, size: int) -> int:
    """Pop the best candidate; return the size of the heap."""
    size -= 1
    _swap(heap, 0, size)
    i = 0
    while True:
        best = i
        for child in (2 * i + 1, 2 * i + 2):
            if child < size and _better(heap, child, best):
                best = child
        if best == i:
            return size
        _swap(heap, i, best)
        i = best


@leaf
def _rank(
    edges: Edges,
    k: int,
    weight: FloatArray,
    ranked: RankedDerivations,
    heap: Heap,
) -> None:
    """Find the k best derivations of every item (Huang & Chiang 2005, Algorithm 2).

    `weight` contains the scores of hyperedges, or their local log-probabilities, which give the
    same ranking. The candidates after ranks (a, b) of the tails of a hyperedge are (a, b + 1), and
    (a + 1, 0) if b is 0: each pair is generated once, after a better one.
    """
    first_edge, tails = edges.first_edge, edges.tails
    score, length = ranked.score, ranked.length
    score[0], length[0] = 0.0, 1
    poll_at = POLL_PERIOD
    for i in range(1, len(first_edge)):
        size, n_ranked = 0, 0
        for e in range(first_edge[i - 1], first_edge[i]):
            a, b = tails[2 * e], tails[2 * e + 1]
            if length[a] > 0 and length[b] > 0:
                size = _push(heap, size, weight[e] + score[a * k] + score[b * k], e, 0, 0)
        while size > 0 and n_ranked < k:
            e, left, right, at = heap.edge[0], heap.left[0], heap.right[0], i * k + n_ranked
            score[at], ranked.edge[at] = heap.score[0], e
            ranked.left[at], ranked.right[at] = left, right
            n_ranked += 1
            size = _pop(heap, size)
            a, b = tails[2 * e], tails[2 * e + 1]
            edge_weight = weight[e]
            if right + 1 < length[b]:
                more = edge_weight + score[a * k + left] + score[b * k + right + 1]
                size = _push(heap, size, more, e, left, right + 1)
            if right == 0 and left + 1 < length[a]:
                more = edge_weight + score[a * k + left + 1] + score[b * k]
                size = _push(heap, size, more, e, left + 1, 0)
        length[i] = n_ranked
        if first_edge[i] > poll_at:
            poll_at += POLL_PERIOD
            if interrupted():
                length[len(first_edge) - 1] = 0
                return


@kernel
def k_best_of(
    rows: IntArray,
    factors: Factors,
    scores: Scores,
    k: int,
    structures: Structures,
) -> None:
    """Find the k best structures of the factors in `rows`, the best first.

    Parameters
    ----------
    rows, factors, scores
        As in a MAP kernel; scores may be -inf.
    k
        The number of structures.
    structures
        Output: rank j of factor r has index ``r * k + j``, and size -1 if it does not exist.
    """
    offsets, extra = factors.offsets, factors.additional_offsets
    start, entry, value, size = structures
    n = k * (largest_of(rows, factors, N_ITEMS) + 1)
    ranked = RankedDerivations(
        np.empty(n),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n // k, dtype=np.int64),
    )
    widest = largest_of(rows, factors, N_EDGES) + k + 1
    heap = Heap(
        np.empty(widest),
        np.empty(widest, dtype=np.int64),
        np.empty(widest, dtype=np.int64),
        np.empty(widest, dtype=np.int64),
    )
    total, rest = np.empty(n // k), np.empty(n // k)
    weight = np.empty(largest_of(rows, factors, N_EDGES))
    stack = np.empty(largest_of(rows, factors, MAX_EDGES) + 1, dtype=np.int64)
    n_entries = largest_arity(rows, offsets) + largest_arity(rows, extra)
    place = np.full(n_entries, -1, dtype=np.int64)
    for r in rows:
        edges, eta_u, eta_v = factor_of(r, factors, scores)
        if has_large(eta_u) or has_large(eta_v):
            local_scores(edges, len(eta_u), eta_u, eta_v, total, rest, weight)
        else:
            for e in range(len(edges.first_entry) - 1):
                weight[e] = edge_score(edges, e, len(eta_u), eta_u, eta_v)
        _rank(edges, k, weight, ranked, heap)
        goal = len(edges.first_edge) - 1
        for j in range(k):
            s = r * k + j
            size[s] = -1
            if j < ranked.length[goal]:
                size[s] = write_derivation(
                    edges, k, j, ranked, stack, place, start[s], entry, value
                )
