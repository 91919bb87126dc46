"""Short cycles of a network of pairs, as triplets that tighten its bound.

The local polytope does not exclude frustrated cycles of three or four nodes. A triplet is a table
of zeros over three nodes, which takes over scores of its pairs: the marginals of the three pairs
then belong to one distribution (Sontag et al. 2008). A cycle of four is covered by two triplets and
a diagonal, a pair with zero scores; both diagonals are used. For binary nodes these are the cycle
inequalities of the cut polytope (Barahona & Mahjoub 1986) for short cycles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray, offsets_of
from lpsmap_decode.networks.messages import Potentials, Shares
from lpsmap_decode.networks.network import TableNetwork, build_network

__all__ = ["Triplets", "no_triplets", "pass_triplets", "subtract_shares"]
__all__ += ["triplets_of"]

MAX_ENTRIES = 400_000
"""Maximum number of entries of all triplets: a pass over them takes about a millisecond."""

MAX_FOUND = 100_000
"""Maximum number of cycles that are collected."""

MAX_PATHS = 20_000_000
"""Maximum number of paths of two pairs that are searched for cycles: it takes a quarter of a
second."""


class Triplets(NamedTuple):
    """Triplets of nodes, and their pairs."""

    nodes: IntArray
    """(T, 3) in increasing order."""
    tables: IntArray
    """(T, 3) the tables of the first and second, second and third, and first and third node."""
    offsets: IntArray
    """(3 T + 1,) where the values of each pair of a triplet begin in arrays of messages."""


def no_triplets() -> Triplets:
    """Return an empty collection of triplets."""
    none = np.empty((0, 3), dtype=np.int64)
    return Triplets(none, none, np.zeros(1, dtype=np.int64))


def triplets_of(network: TableNetwork) -> tuple[TableNetwork, Triplets] | None:
    """Return the triplets of all cycles of three and four, and the network with their diagonals.

    Return None if there are no cycles, too many cycles, or tables over more than two nodes.
    """
    if not len(network.table) or (np.diff(network.scope_offsets) != 2).any():
        return None
    ends = np.sort(network.scope.reshape(-1, 2), axis=1)
    if len(np.unique(ends, axis=0)) < len(ends):
        return None
    first, other = np.concatenate([ends, ends[:, ::-1]]).T
    order = np.lexsort((other, first))
    degree = np.bincount(first, minlength=len(network.n_states))
    if (degree * (degree - 1)).sum() > 2 * MAX_PATHS:
        return None
    begin = offsets_of(degree)
    found = np.empty((MAX_FOUND, 3), dtype=np.int64)
    n = _find_triplets(begin, other[order], found)
    if not 0 < n < MAX_FOUND:
        return None
    nodes = np.unique(np.sort(found[:n], axis=1), axis=0)
    k = network.n_states[nodes]
    if k.prod(axis=1).sum() > MAX_ENTRIES:
        return None
    pairs = nodes[:, [[0, 1], [1, 2], [0, 2]]]
    every = np.concatenate([ends, pairs.reshape(-1, 2)])
    different, first, which = np.unique(every, axis=0, return_index=True, return_inverse=True)
    fresh = first >= len(ends)
    number = np.where(fresh, len(ends) - 1 + np.cumsum(fresh), first)
    scope = np.concatenate([network.scope, different[fresh].reshape(-1)])
    wider = build_network(network.n_states, np.arange(0, len(scope) + 1, 2), scope)
    tables = number[which.reshape(-1)[len(ends) :]].reshape(-1, 3)
    offsets = offsets_of(network.n_states[pairs].prod(axis=2).reshape(-1))
    return wider, Triplets(nodes, tables, offsets)


@kernel
def _find_triplets(begin: IntArray, neighbours: IntArray, found: IntArray) -> int:
    """Write the triplets of all cycles of three, and of four without chords; return their number.

    The number of steps is that of paths of two pairs, and of cycles. The number is ``len(found)``
    if the time was up or `found` is full.

    Parameters
    ----------
    begin, neighbours
        Node i has the neighbours ``neighbours[begin[i]:begin[i + 1]]``, in increasing order.
    found
        The output.
    """
    n, count, most = len(begin) - 1, 0, len(found) - 4
    middle, following = np.empty((2, len(neighbours)), dtype=np.int64)  # nodes of the paths from i
    latest, ends, common = np.full(n, -1), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    near = np.full(n, -1)
    for i in range(n):
        n_paths, n_ends = 0, 0
        for k in neighbours[begin[i] : begin[i + 1]]:
            near[k] = i
            for j in neighbours[begin[k] : begin[k + 1]]:
                if j <= i:
                    continue
                if latest[j] < 0:
                    ends[n_ends] = j
                    n_ends += 1
                middle[n_paths], following[n_paths], latest[j] = k, latest[j], n_paths
                n_paths += 1
        for j in ends[:n_ends]:
            m, path, latest[j] = 0, latest[j], -1
            while path >= 0:
                common[m], path = middle[path], following[path]
                m += 1
            for a in range(m):
                if count >= most or interrupted():
                    return len(found)
                if near[j] == i:
                    found[count] = i, j, common[a]
                    count += 1
                    continue
                for b in range(a):
                    if count >= most:
                        return len(found)
                    if not _are_neighbours(begin, neighbours, common[a], common[b]):
                        # the diagonal i, j here; the other one from its own ends
                        found[count] = i, j, common[a]
                        found[count + 1] = i, j, common[b]
                        count += 2
    return count


@leaf
def _are_neighbours(begin: IntArray, neighbours: IntArray, i: int, j: int) -> bool:
    """Return whether two nodes are neighbours, by bisection."""
    low, high = begin[i], begin[i + 1]
    while low < high:
        at = (low + high) // 2
        if neighbours[at] < j:
            low = at + 1
        else:
            high = at
    found: bool = low < begin[i + 1] and neighbours[low] == j
    return found


@leaf
def _place(network: TableNetwork, table: int, node: int) -> int:
    """Return the place of a node in a pair."""
    lo = int(network.scope_offsets[table])
    return lo if network.scope[lo] == node else lo + 1


@leaf
def _move_pair(
    taking: bool,
    table: int,
    low: int,
    high: int,
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
    own: FloatArray,
    scores: FloatArray,
) -> None:
    """Move scores of a pair to a triplet, or back.

    Parameters
    ----------
    taking
        If true, add the pair's scores and messages to the triplet's share, and clear `scores`.
        Otherwise return a third of `scores` to the pair, and keep the rest as the triplet's share.
    own
        The triplet's share.
    """
    p, q = _place(network, table, low), _place(network, table, high)
    k, n = network.n_states[low], network.n_states[high]
    stride, step = (n, 1) if p < q else (1, k)
    first, from_low, from_high = (
        network.table_offsets[table],
        network.message_offsets[p],
        network.message_offsets[q],
    )
    for x in range(k):
        for y in range(n):
            e, at = np.uint64(first + x * stride + y * step), np.uint64(x * n + y)
            sent = shares.messages[np.uint64(from_low + x)]
            sent += shares.messages[np.uint64(from_high + y)]
            if taking:
                own[at] += given.entries[e] + sent
                scores[at] = -np.inf
            elif scores[at] > -np.inf:
                given.entries[e] = scores[at] / 3.0 - sent
                own[at] -= scores[at] / 3.0
            else:  # closed: nothing moves
                own[at] -= given.entries[e] + sent


@leaf
def subtract_shares(
    network: TableNetwork, triplets: Triplets, own: FloatArray, left: FloatArray
) -> None:
    """Subtract the shares of triplets from the scores of tables.

    Recomputing this now and then keeps rounding errors from accumulating.
    """
    for t in range(len(triplets.nodes)):
        for q in range(3):
            table, at = triplets.tables[t, q], triplets.offsets[3 * t + q]
            low, high = triplets.nodes[t, q % 2], triplets.nodes[t, 1 + (q > 0)]
            k, n = network.n_states[low], network.n_states[high]
            lower_first = network.scope[network.scope_offsets[table]] == low
            stride, step = (n, 1) if lower_first else (1, k)
            first = network.table_offsets[table]
            for x in range(k):
                for y in range(n):
                    left[first + x * stride + y * step] -= own[at + x * n + y]


@leaf
def pass_triplets(
    forward: bool,
    network: TableNetwork,
    triplets: Triplets,
    given: Potentials,
    shares: Shares,
    own: FloatArray,
    memory: FloatArray,
) -> None:
    """For every triplet, take the scores of its pairs; return a third of its max-marginals to each.

    Parameters
    ----------
    forward
        Whether to visit triplets in order, or in reverse.
    network
        The network with all pairs of the triplets.
    given
        Remaining scores of the pairs; they are updated.
    own
        The shares of the triplets.
    memory
        Workspace for the largest share of a triplet in `own`.
    """
    n, closed, first_state = len(triplets.nodes), given.closed, network.first_state
    for s in range(n):
        t = s if forward else n - 1 - s
        i, j, h = triplets.nodes[t]
        bounds = triplets.offsets[3 * t : 3 * t + 4]
        begin = bounds[0]
        of_ij, of_jh = own[begin : bounds[1]], own[bounds[1] : bounds[2]]
        of_ih = own[bounds[2] : bounds[3]]
        ij, jh = memory[: bounds[1] - begin], memory[bounds[1] - begin : bounds[2] - begin]
        ih = memory[bounds[2] - begin : bounds[3] - begin]
        _move_pair(True, triplets.tables[t, 0], i, j, network, given, shares, of_ij, ij)
        _move_pair(True, triplets.tables[t, 1], j, h, network, given, shares, of_jh, jh)
        _move_pair(True, triplets.tables[t, 2], i, h, network, given, shares, of_ih, ih)
        n_j, n_h = network.n_states[j], network.n_states[h]
        for x in range(network.n_states[i]):
            for y in range(n_j):
                xy = np.uint64(x * n_j + y)
                here = of_ij[xy] + closed[first_state[i] + x] + closed[first_state[j] + y]
                for z in range(n_h):
                    yz, xz = np.uint64(y * n_h + z), np.uint64(x * n_h + z)
                    score = here + of_jh[yz] + of_ih[xz] + closed[first_state[h] + z]
                    ij[xy] = max(ij[xy], score)
                    jh[yz] = max(jh[yz], score)
                    ih[xz] = max(ih[xz], score)
        _move_pair(False, triplets.tables[t, 0], i, j, network, given, shares, of_ij, ij)
        _move_pair(False, triplets.tables[t, 1], j, h, network, given, shares, of_jh, jh)
        _move_pair(False, triplets.tables[t, 2], i, h, network, given, shares, of_ih, ih)
