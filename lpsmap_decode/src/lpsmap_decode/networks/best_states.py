"""From beliefs to answers: one state per node, or uniform marginals over its best states."""

from __future__ import annotations

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_decode.networks.messages import Potentials, Shares, count_up
from lpsmap_decode.networks.network import Places, TableNetwork

__all__ = [
    "add_additionals",
    "assignment_score",
    "round_beliefs",
    "share_ties",
    "shares_score",
    "split_pair",
]

TWO, FOUR = 2, 4


@leaf
def round_beliefs(
    begin: int,
    end: int,
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
    chosen: IntArray,
    scores: FloatArray,
    state: IntArray,
) -> None:
    """Choose states node by node, given the earlier choices and the messages of later nodes.

    To be called after a backward pass (Kolmogorov 2006, section 2.3). `scores` is workspace for
    twice the largest number of states.
    """
    at, scope, first_state = network.message_offsets, network.scope, network.first_state
    for i in range(begin, end):
        k = network.n_states[i]
        for x in range(k):
            scores[x] = given.states[first_state[i] + x] + given.closed[first_state[i] + x]
        for place in network.places[network.place_offsets[i] : network.place_offsets[i + 1]]:
            f = network.table[place]
            if network.first[f] == i:
                for x in range(k):
                    scores[x] -= shares.messages[at[place] + x]
                continue
            lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
            if hi - lo == TWO:
                _add_chosen(place, lo + hi - 1 - place, network, given, chosen, scores)
                continue
            for x in range(k):
                scores[k + x] = -np.inf
            state[: hi - lo] = 0
            size = network.table_offsets[f + 1] - network.table_offsets[f]
            for e in range(given.tables[f], given.tables[f] + size):
                score, fits, mine = given.entries[e], True, k + state[place - lo]
                for p in range(lo, hi):
                    j, y = scope[p], state[p - lo]
                    if j < i:
                        fits &= chosen[j] == y
                    elif j > i:
                        score += shares.messages[at[p] + y] + given.closed[first_state[j] + y]
                scores[mine] = max(scores[mine], score) if fits else scores[mine]
                count_up(network, lo, hi, state)
            for x in range(k):
                scores[x] += scores[k + x]
        best, chosen[i] = -np.inf, 0
        for x in range(k):
            if scores[x] > best:
                best, chosen[i] = scores[x], x


@leaf
def _add_chosen(
    place: int,
    other: int,
    network: TableNetwork,
    given: Potentials,
    chosen: IntArray,
    scores: FloatArray,
) -> None:
    """Add the scores of a pair to those of a node, given the chosen state of the other node."""
    j, k = network.scope[other], network.n_states[network.scope[place]]
    e, y, n_other = given.tables[network.table[place]], chosen[j], network.n_states[j]
    if place < other:
        for x in range(k):
            scores[x] += given.entries[e + x * n_other + y]
    else:
        for x in range(k):
            scores[x] += given.entries[e + y * k + x]


@leaf
def assignment_score(
    begin: int, end: int, network: TableNetwork, given: Potentials, chosen: IntArray
) -> float:
    """Return the score of the states chosen for the nodes `begin` to ``end - 1``."""
    total = 0.0
    for i in range(begin, end):
        total += given.states[network.first_state[i] + chosen[i]]
        for place in network.places[network.place_offsets[i] : network.place_offsets[i + 1]]:
            f = network.table[place]
            lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
            if network.scope[lo] != i:
                continue
            e = 0
            for p in range(lo, hi):
                j = network.scope[p]
                e = e * network.n_states[j] + chosen[j]
            total += given.entries[given.tables[f] + e]
    return total


@leaf
def share_ties(
    begin: int,
    end: int,
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
    tied: float,
    marginals: FloatArray,
) -> bool:
    """Write uniform marginals over the best states of every node; return whether any tie.

    States tie if their beliefs differ by at most `tied`, relative to the best one.
    """
    any_tie = False
    for i in range(begin, end):
        first, last, most, n = network.first_state[i], network.first_state[i + 1], -np.inf, 0.0
        for s in range(first, last):
            most = max(most, shares.beliefs[s] + given.closed[s])
        least = most - tied * max(1.0, abs(most))
        for s in range(first, last):
            marginals[s] = 1.0 if shares.beliefs[s] + given.closed[s] >= least else 0.0
            n += marginals[s]
        any_tie |= n > 1.0
        for s in range(first, last):
            marginals[s] /= n
    return any_tie


@leaf
def split_pair(f: int, network: TableNetwork, given: Potentials, marginals: FloatArray) -> float:
    """Return the best marginal of both nodes of a binary pair being on, given their marginals.

    It determines the other three entries, and the score of the pair is linear in it.
    """
    p, e = network.scope_offsets[f], given.tables[f]
    a = marginals[network.first_state[network.scope[p]] + 1]
    b = marginals[network.first_state[network.scope[p + 1]] + 1]
    gain = given.entries[e] - given.entries[e + 1] - given.entries[e + 2] + given.entries[e + 3]
    both: float = min(a, b) if gain > 0.0 else max(0.0, a + b - 1.0)
    return both


@kernel
def add_additionals(
    network: TableNetwork,
    places: Places,
    given: Potentials,
    marginals: FloatArray,
    marginals_v: FloatArray,
) -> None:
    """Add the marginals of the additionals for integral or tied marginals of nodes.

    Tied marginals are supported in pairs of binary nodes; other tables need integral ones.
    """
    for i in range(len(places.own_state)):
        if places.own_additional[i] >= 0:
            marginals_v[places.own_additional[i]] += marginals[places.own_state[i]]
    most = 0
    for f in range(len(places.first_entry)):
        most = max(most, network.table_offsets[f + 1] - network.table_offsets[f])
    entries = np.empty(most)
    for f in range(len(places.first_entry)):
        size = network.table_offsets[f + 1] - network.table_offsets[f]
        _write_entries(f, size, network, given, marginals, entries)
        for e in range(size):
            v = places.additional[places.first_entry[f] + e]
            if v >= 0:
                marginals_v[places.first_additional[f] + v] += entries[e]


@leaf
def _write_entries(
    f: int,
    size: int,
    network: TableNetwork,
    given: Potentials,
    marginals: FloatArray,
    entries: FloatArray,
) -> None:
    """Write the marginals of the entries of a table."""
    lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
    if hi - lo == TWO and size == FOUR and network.n_states[network.scope[lo]] == TWO:
        a = marginals[network.first_state[network.scope[lo]] + 1]
        b = marginals[network.first_state[network.scope[lo + 1]] + 1]
        both = split_pair(f, network, given, marginals)
        entries[0], entries[1] = 1.0 - a - b + both, b - both
        entries[2], entries[3] = a - both, both
        return
    entries[:size] = 1.0
    stride = size
    for p in range(lo, hi):
        i = network.scope[p]
        k, stride = network.n_states[i], stride // network.n_states[i]
        for e in range(size):
            entries[e] *= marginals[network.first_state[i] + e // stride % k]


@leaf
def shares_score(
    begin: int, end: int, network: TableNetwork, given: Potentials, marginals: FloatArray
) -> float:
    """Return the score of marginals of the nodes `begin` to ``end - 1``, for binary pairs only.

    Scores that replace ``-inf`` enter only if they make the total as low.
    """
    total = 0.0
    for i in range(begin, end):
        for s in range(network.first_state[i], network.first_state[i + 1]):
            if marginals[s] > 0.0:
                total += marginals[s] * given.states[s]
        for place in network.places[network.place_offsets[i] : network.place_offsets[i + 1]]:
            f = network.table[place]
            p, e = network.scope_offsets[f], given.tables[f]
            if p != place:
                continue
            both = split_pair(f, network, given, marginals)
            a = marginals[network.first_state[i] + 1]
            b = marginals[network.first_state[network.scope[p + 1]] + 1]
            total += (1.0 - a - b + both) * given.entries[e] + (b - both) * given.entries[e + 1]
            total += (a - both) * given.entries[e + 2] + both * given.entries[e + 3]
    return total
