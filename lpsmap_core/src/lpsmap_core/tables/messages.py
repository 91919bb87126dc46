"""Bounds of networks by messages: block coordinate ascent on the dual of LP-MAP.

Every table holds a message of each of its nodes, a share of the node's scores. A node asks its
tables for their max-marginals, which with what it kept are its *beliefs*, and gives shares of these
back: forward to the tables that it is not the last node of, then backward. That is sequential
tree-reweighted message passing (Kolmogorov 2006), for tables over more than two nodes too
(Kolmogorov 2015). The bound never rises. Where it stops it is the LP's for pairs of binary nodes,
and often elsewhere; where all beliefs agree on one assignment, that is the best.

Scores of ``-inf`` come as finite ones that outweigh all else, see `finite_scores`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.compile import kernel, leaf
from lpsmap_core.kernels.interrupts import interrupted
from lpsmap_core.layout.network import Network

__all__ = ["Potentials", "Shares", "ascend", "finite_scores", "new_shares", "pass_messages"]
__all__ += ["assignment_score", "round_beliefs", "write_max_marginals"]

TWO = 2


class Potentials(NamedTuple):
    """Finite scores of a network, and which states are still open."""

    states: FloatArray
    entries: FloatArray
    closed: FloatArray
    """For each state 0, or ``-inf`` if it is out of the question."""


class Shares(NamedTuple):
    """What messages are at: any of them splits the same scores."""

    messages: FloatArray
    """For each place and state, what the node gave to the table."""
    marginals: FloatArray
    """Likewise, the table's max-marginals without that message."""
    beliefs: FloatArray
    """For each state, when its node last asked."""
    first: IntArray
    """For each table, its first node."""
    last: IntArray


def new_shares(network: Network) -> Shares:
    """Return shares of nothing."""
    messages, marginals = np.zeros((2, int(network.message_offsets[-1])))
    first = last = np.empty(0, dtype=np.int64)
    if len(network.table):
        first = np.minimum.reduceat(network.scope, network.scope_offsets[:-1])
        last = np.maximum.reduceat(network.scope, network.scope_offsets[:-1])
    return Shares(messages, marginals, np.zeros(int(network.first_state[-1])), first, last)


def finite_scores(states: FloatArray, entries: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return scores of states and entries without ``-inf``, and minus what stands for it."""
    allowed, allowed_v = states > -np.inf, entries > -np.inf
    total = np.abs(states[allowed]).sum() + np.abs(entries[allowed_v]).sum()
    decisive = 1.0 + 2.0 * float(total)
    return np.where(allowed, states, -decisive), np.where(allowed_v, entries, -decisive), decisive


@leaf
def write_max_marginals(
    place: int, network: Network, given: Potentials, shares: Shares, state: IntArray
) -> None:
    """Write a table's max-marginals of one of its nodes, without that node's message.

    `state` is memory for a number a node of the table.
    """
    n_states, scope, at, own = network.n_states, network.scope, network.message_offsets, place
    messages, closed, first_state = shares.messages, given.closed, network.first_state
    f, found = network.table[place], shares.marginals
    lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
    k = n_states[scope[place]]
    begin = np.uint64(at[own])
    entry = np.uint64(network.table_offsets[f])
    if hi - lo == TWO:
        other = lo + hi - 1 - place
        j = scope[other]
        n_other = n_states[j]
        stride, step = (n_other, 1) if place == lo else (1, k)
        from_other, of_other = np.uint64(at[other]), np.uint64(first_state[j])
        for a in range(np.uint64(k)):
            best, e = -np.inf, entry + a * np.uint64(stride)
            for b in range(np.uint64(n_other)):
                score = messages[from_other + b] + closed[of_other + b]
                best = max(best, given.entries[e + b * np.uint64(step)] + score)
            found[begin + a] = best
        return
    for x in range(k):
        found[begin + np.uint64(x)] = -np.inf
    state[: hi - lo] = 0
    for number in range(network.table_offsets[f], network.table_offsets[f + 1]):
        score = given.entries[number]
        for p in range(lo, hi):
            if p != place:
                y = state[p - lo]
                score += messages[at[p] + y] + closed[first_state[scope[p]] + y]
        here = begin + np.uint64(state[place - lo])
        found[here] = max(found[here], score)
        count_up(network, lo, hi, state)


@leaf
def count_up(network: Network, lo: int, hi: int, state: IntArray) -> None:
    """Go on to the next choice of states of a table's nodes, the last one's the fastest."""
    for p in range(hi - 1, lo - 1, -1):
        state[p - lo] += 1
        if state[p - lo] < network.n_states[network.scope[p]]:
            return
        state[p - lo] = 0


@leaf
def pass_messages(
    forward: bool,
    begin: int,
    end: int,
    network: Network,
    given: Potentials,
    shares: Shares,
    afresh: bool,
    spare: float,
    state: IntArray,
) -> float:
    """Let the nodes `begin` to ``end - 1`` ask and give in turn; return the bound afterwards.

    Parameters
    ----------
    forward
        Whether in their order, or in the opposite one.
    afresh
        Whether all max-marginals are to be asked for, as after a change of scores. Else those that
        the last pass left are taken where they cannot have changed.
    spare
        States whose beliefs are lower than the best by this are closed: no assignment with them
        reaches what the bound has to stay above. Infinite for none.
    """
    bound = 0.0
    messages, marginals, beliefs = shares.messages, shares.marginals, shares.beliefs
    leading, ending = (shares.first, shares.last) if forward else (shares.last, shares.first)
    for n in range(end - begin):
        i = begin + n if forward else end - 1 - n
        k, at = network.n_states[i], np.uint64(network.first_state[i])
        for x in range(np.uint64(k)):
            beliefs[at + x] = given.states[at + x]
        n_in, n_out = 0, 0
        places = network.places[network.place_offsets[i] : network.place_offsets[i + 1]]
        for place in places:
            f = network.table[place]
            n_out += ending[f] != i
            if leading[f] != i or afresh:
                write_max_marginals(place, network, given, shares, state)
            n_in += leading[f] != i
            m = np.uint64(network.message_offsets[place])
            for x in range(np.uint64(k)):
                beliefs[at + x] += marginals[m + x]
        most = -np.inf
        for x in range(np.uint64(k)):
            most = max(most, beliefs[at + x] + given.closed[at + x])
        if spare < np.inf:
            for x in range(np.uint64(k)):
                if beliefs[at + x] < most - spare:
                    given.closed[at + x] = -np.inf
        share = 1.0 / max(n_in, n_out, 1)
        bound += (1.0 - share * n_out) * most
        for place in places:
            given_on = share if ending[network.table[place]] != i else 0.0
            m = np.uint64(network.message_offsets[place])
            for x in range(np.uint64(k)):
                messages[m + x] = given_on * beliefs[at + x] - marginals[m + x]
    return bound


@leaf
def round_beliefs(
    begin: int,
    end: int,
    network: Network,
    given: Potentials,
    shares: Shares,
    chosen: IntArray,
    scores: FloatArray,
    state: IntArray,
) -> None:
    """Choose states one node after the other, given those before and the messages of those after.

    After a backward pass, as Kolmogorov (2006, section 2.3) does. `scores` is memory for the
    largest number of states.
    """
    at, scope, first_state = network.message_offsets, network.scope, network.first_state
    for i in range(begin, end):
        k = network.n_states[i]
        for x in range(k):
            scores[x] = given.states[first_state[i] + x] + given.closed[first_state[i] + x]
        for place in network.places[network.place_offsets[i] : network.place_offsets[i + 1]]:
            f = network.table[place]
            if shares.first[f] == i:
                for x in range(k):
                    scores[x] += shares.marginals[at[place] + x]
                continue
            lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
            for x in range(k):
                best = -np.inf
                state[: hi - lo] = 0
                for e in range(network.table_offsets[f], network.table_offsets[f + 1]):
                    score, fits = given.entries[e], state[place - lo] == x
                    for p in range(lo, hi):
                        j, y = scope[p], state[p - lo]
                        if j < i:
                            fits &= chosen[j] == y
                        elif j > i:
                            score += shares.messages[at[p] + y] + given.closed[first_state[j] + y]
                    best = max(best, score) if fits else best
                    count_up(network, lo, hi, state)
                scores[x] += best
        best, chosen[i] = -np.inf, 0
        for x in range(k):
            if scores[x] > best:
                best, chosen[i] = scores[x], x


@leaf
def assignment_score(
    begin: int, end: int, network: Network, given: Potentials, chosen: IntArray
) -> float:
    """Return what the states chosen for the nodes `begin` to ``end - 1`` score."""
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
            total += given.entries[network.table_offsets[f] + e]
    return total


@kernel
def ascend(
    components: IntArray,
    first_node: IntArray,
    network: Network,
    given: Potentials,
    shares: Shares,
    most_passes: int,
    tol: float,
    chosen: IntArray,
    score: FloatArray,
    bound: FloatArray,
    passes: IntArray,
) -> None:
    """Pass messages in some components until a rounding meets the bound, or the bound stands still.

    Parameters
    ----------
    components
        Their numbers; a component's nodes begin at ``first_node``.
    most_passes
        As many pairs of passes at most.
    tol
        How near is met, and how little is still, relative to the bound.
    chosen, score, bound, passes
        The result: the best rounding for each node; for each component its score, a bound, and how
        many pairs of passes were made.
    """
    width, states = 1, 1
    for f in range(len(network.scope_offsets) - 1):
        width = max(width, network.scope_offsets[f + 1] - network.scope_offsets[f])
    for k in network.n_states:
        states = max(states, k)
    memory, scores = np.zeros(width, dtype=np.int64), np.empty(states)
    rounded = np.zeros(len(network.n_states), dtype=np.int64)
    for c in components:
        begin, end = first_node[c], first_node[c + 1]
        score[c], last = -np.inf, np.inf
        for t in range(most_passes):
            for forward in (True, False):
                bound[c] = pass_messages(
                    forward, begin, end, network, given, shares, t == 0, np.inf, memory
                )
            passes[c] = t + 1
            if interrupted():
                return
            if t > 1 and t % 4 != 3:
                continue
            round_beliefs(begin, end, network, given, shares, rounded, scores, memory)
            found = assignment_score(begin, end, network, given, rounded)
            if found > score[c]:
                score[c] = found
                chosen[begin:end] = rounded[begin:end]
            size = max(1.0, abs(bound[c]))
            if bound[c] - score[c] <= tol * size or last - bound[c] <= tol * size:
                break
            last = bound[c]
