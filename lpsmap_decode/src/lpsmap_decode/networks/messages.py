"""Bounds of networks by messages: block coordinate ascent on the dual of LP-MAP.

Every table holds a message from each of its nodes, a share of the node's scores. A node collects
the max-marginals of its tables, which together with its remaining scores are its *beliefs*, and
distributes shares of these: in a forward pass to the tables of which it is not the last node, then
in a backward pass. This is sequential tree-reweighted message passing (Kolmogorov 2006),
generalised to tables over more than two nodes (Kolmogorov 2015). The bound never increases. At a
fixed point it equals the LP bound for pairs of binary nodes, and often otherwise; if all beliefs
agree on one assignment, it is optimal.

Scores of ``-inf`` are replaced by finite scores that outweigh all others; see `finite_scores`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_decode.networks.network import TableNetwork, TableScores

__all__ = ["Potentials", "Shares", "count_up", "finite_scores", "largest_table_and_node"]
__all__ += ["new_shares", "pass_messages"]

TWO, THREE, FOUR, EIGHT = 2, 3, 4, 8
ONE, STEP = np.uint64(1), np.uint64(2)


class Potentials(NamedTuple):
    """Finite scores of a network, and which states are still open."""

    states: FloatArray
    entries: FloatArray
    tables: IntArray
    """For each table, where its entries begin."""
    closed: FloatArray
    """For each state 0, or ``-inf`` if it is closed."""


class Shares(NamedTuple):
    """The state of message passing, a reparametrisation of the scores."""

    messages: FloatArray
    """For each place and state, the message from the node to the table. A pass ends each table at
    one of its nodes, whose message is then minus the max-marginals of the table without it."""
    beliefs: FloatArray
    """For each state, the belief when its node was last visited."""


def new_shares(network: TableNetwork) -> Shares:
    """Return zero messages."""
    n_messages, n_states = int(network.message_offsets[-1]), int(network.first_state[-1])
    return Shares(np.zeros(n_messages), np.zeros(n_states))


def finite_scores(network: TableNetwork, scores: TableScores) -> tuple[Potentials, float]:
    """Return finite scores, with all states open, and minus the score that replaces ``-inf``."""
    states, entries = scores.states.copy(), scores.entries.copy()
    given = Potentials(states, entries, scores.tables, np.zeros(len(states)))
    return given, _make_finite(network.table_offsets, *given[:3])


@leaf
def _make_finite(
    table_offsets: IntArray, states: FloatArray, entries: FloatArray, tables: IntArray
) -> float:
    """Replace ``-inf`` by a score that outweighs all others; return minus that score."""
    total = 0.0
    for x in states:
        total += abs(x) if x > -np.inf else 0.0
    for f in range(len(tables)):
        for e in range(tables[f], tables[f] + table_offsets[f + 1] - table_offsets[f]):
            total += abs(entries[e]) if entries[e] > -np.inf else 0.0
    decisive = 1.0 + 2.0 * total
    for s in range(len(states)):
        states[s] = max(states[s], -decisive)
    for e in range(len(entries)):
        entries[e] = max(entries[e], -decisive)
    return decisive


@leaf
def largest_table_and_node(network: TableNetwork) -> tuple[int, int]:
    """Return the largest number of nodes of a table, and of states of a node, for workspaces."""
    width, n_states = 1, 1
    for f in range(len(network.scope_offsets) - 1):
        width = max(width, network.scope_offsets[f + 1] - network.scope_offsets[f])
    for k in network.n_states:
        n_states = max(n_states, k)
    return width, n_states


@leaf
def _return_message(
    place: int, network: TableNetwork, given: Potentials, shares: Shares, state: IntArray
) -> None:
    """Replace a node's message to a table by minus the max-marginals that the table has without it.

    `state` is workspace for one number per node of the table.
    """
    n_states, scope, at, own = network.n_states, network.scope, network.message_offsets, place
    messages, closed, first_state = shares.messages, given.closed, network.first_state
    f = network.table[place]
    lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
    k = n_states[scope[place]]
    begin = np.uint64(at[own])
    entry, size = np.uint64(given.tables[f]), network.table_offsets[f + 1]
    size -= network.table_offsets[f]
    if hi - lo == TWO and size == FOUR and k == TWO:
        _return_of_binaries(place == lo, entry, begin, lo + hi - 1 - place, network, given, shares)
        return
    if hi - lo == THREE and size == EIGHT and k == TWO:
        _return_of_three(place - lo, entry, begin, lo, network, given, shares)
        return
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
            messages[begin + a] = -best
        return
    for x in range(k):
        messages[begin + np.uint64(x)] = np.inf
    state[: hi - lo] = 0
    for number in range(given.tables[f], given.tables[f] + size):
        score = given.entries[number]
        for p in range(lo, hi):
            if p != place:
                y = state[p - lo]
                score += messages[at[p] + y] + closed[first_state[scope[p]] + y]
        here = begin + np.uint64(state[place - lo])
        messages[here] = min(messages[here], -score)
        count_up(network, lo, hi, state)


@leaf
def _return_of_binaries(
    is_first: bool,
    entry: np.uint64,
    begin: np.uint64,
    other: int,
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
) -> None:
    """Return the message of one of two binary nodes, the most frequent kind of table."""
    entries, messages = given.entries, shares.messages
    j, m = np.uint64(network.first_state[network.scope[other]]), network.message_offsets[other]
    off = messages[np.uint64(m)] + given.closed[j]
    on = messages[np.uint64(m) + ONE] + given.closed[j + ONE]
    across, down = (ONE, STEP) if is_first else (STEP, ONE)
    messages[begin] = -max(entries[entry] + off, entries[entry + across] + on)
    messages[begin + ONE] = -max(entries[entry + down] + off, entries[entry + across + down] + on)


@leaf
def _return_of_three(
    mine: int,
    entry: np.uint64,
    begin: np.uint64,
    lo: int,
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
) -> None:
    """Return the message of one of three binary nodes."""
    messages, closed = shares.messages, given.closed
    p, q = lo + (1 if mine == 0 else 0), lo + (1 if mine == TWO else TWO)
    at, to = np.uint64(network.message_offsets[p]), np.uint64(network.message_offsets[q])
    i, j = network.first_state[network.scope[p]], network.first_state[network.scope[q]]
    step_p, step_q = np.uint64(FOUR >> (p - lo)), np.uint64(FOUR >> (q - lo))
    entries, step = given.entries, np.uint64(FOUR >> mine)
    i, j = np.uint64(i), np.uint64(j)
    p_off, p_on = messages[at] + closed[i], messages[at + ONE] + closed[i + ONE]
    q_off, q_on = messages[to] + closed[j], messages[to + ONE] + closed[j + ONE]
    neither, one, other, both = p_off + q_off, p_on + q_off, p_off + q_on, p_on + q_on
    e_p, e_q, e_both = entry + step_p, entry + step_q, entry + step_p + step_q
    messages[begin] = -max(
        max(entries[entry] + neither, entries[e_p] + one),
        max(entries[e_q] + other, entries[e_both] + both),
    )
    messages[begin + ONE] = -max(
        max(entries[entry + step] + neither, entries[e_p + step] + one),
        max(entries[e_q + step] + other, entries[e_both + step] + both),
    )


@leaf
def count_up(network: TableNetwork, lo: int, hi: int, state: IntArray) -> None:
    """Advance to the next choice of states of a table's nodes, the last one's fastest."""
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
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
    afresh: bool,
    spare: float,
    state: IntArray,
) -> float:
    """Pass messages at the nodes `begin` to ``end - 1`` in turn; return the bound afterwards.

    Parameters
    ----------
    forward
        Whether to visit nodes in order, or in reverse.
    afresh
        Whether to recompute all max-marginals, as after a change of scores. Otherwise those of the
        last pass, minus its messages, are reused where they cannot have changed.
    spare
        States whose beliefs are lower than the best by more than this are closed: no assignment
        with them scores enough. Infinite to close no state.
    """
    bound = 0.0
    messages, beliefs = shares.messages, shares.beliefs
    leading, ending = (network.first, network.last) if forward else (network.last, network.first)
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
                _return_message(place, network, given, shares, state)
            n_in += leading[f] != i
            m = np.uint64(network.message_offsets[place])
            for x in range(np.uint64(k)):
                beliefs[at + x] -= messages[m + x]
        most = -np.inf
        for x in range(np.uint64(k)):
            most = max(most, beliefs[at + x] + given.closed[at + x])
        if spare < np.inf:
            for x in range(np.uint64(k)):
                if beliefs[at + x] < most - spare:
                    given.closed[at + x] = -np.inf
        fraction = 1.0 / max(n_in, n_out, 1)
        bound += (1.0 - fraction * n_out) * most
        for place in places:
            if ending[network.table[place]] == i:
                continue
            m = np.uint64(network.message_offsets[place])
            for x in range(np.uint64(k)):
                messages[m + x] += fraction * beliefs[at + x]
    return bound
