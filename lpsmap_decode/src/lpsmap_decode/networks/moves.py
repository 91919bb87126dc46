"""Local search on a network by tabu moves: one node changes its state, and not soon back.

Tabu search (Glover 1989): the best move is made even if it lowers the score, but a state that was
left is not entered again for a while, unless that gives a new best score. The score of every state,
given the other nodes, is updated incrementally.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_decode.networks.messages import Potentials
from lpsmap_decode.networks.network import TableNetwork
from lpsmap_decode.networks.rounding import assignment_score

__all__ = ["improve"]

SHORTEST = 5
"""Minimum number of moves before a state that was left may be entered again; up to as many more at
random."""

POLL_PERIOD = 1_000_000
"""Number of states that are compared between two checks for interrupts."""


@leaf
def _add_table(
    f: int,
    sign: float,
    network: TableNetwork,
    given: Potentials,
    chosen: IntArray,
    gains: FloatArray,
) -> None:
    """Add to each state of a table's nodes its entry, given the states of the others."""
    lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
    entry, stride = network.table_offsets[f], 1
    for p in range(hi - 1, lo - 1, -1):
        entry += stride * chosen[network.scope[p]]
        stride *= network.n_states[network.scope[p]]
    stride = 1
    for p in range(hi - 1, lo - 1, -1):
        i = network.scope[p]
        at, base = network.first_state[i], entry - stride * chosen[i]
        for x in range(network.n_states[i]):
            gains[at + x] += sign * given.entries[base + stride * x]
        stride *= network.n_states[i]


@kernel
def improve(network: TableNetwork, given: Potentials, chosen: IntArray, n_moves: int) -> float:
    """Make moves from an assignment; write the best one to `chosen`, and return its score.

    Only open states are entered.
    """
    n, now = len(network.n_states), chosen.copy()
    gains, owner = given.states.copy(), np.empty(len(given.states), dtype=np.int64)
    for i in range(n):
        owner[network.first_state[i] : network.first_state[i + 1]] = i
    for f in range(len(network.scope_offsets) - 1):
        _add_table(f, 1.0, network, given, now, gains)
    score = assignment_score(0, n, network, given, now)
    best, barred, chance = score, np.zeros(len(owner), dtype=np.int64), 1
    period = 1 + POLL_PERIOD // max(1, len(owner))
    for t in range(n_moves):
        most, move = -np.inf, -1
        for u in range(len(owner)):
            i = owner[u]
            here = network.first_state[i] + now[i]
            gain = gains[u] - gains[here] + given.closed[u]
            allowed = barred[u] <= t or score + gain > best + 1e-9 * (1.0 + abs(best))
            if u != here and allowed and gain > most:
                most, move = gain, u
        if move < 0:
            break
        i = owner[move]
        places = network.places[network.place_offsets[i] : network.place_offsets[i + 1]]
        for place in places:
            _add_table(network.table[place], -1.0, network, given, now, gains)
        chance = (1103515245 * chance + 12345) % (1 << 31)
        barred[network.first_state[i] + now[i]] = t + 1 + SHORTEST + (chance >> 16) % SHORTEST
        now[i] = move - network.first_state[i]
        for place in places:
            _add_table(network.table[place], 1.0, network, given, now, gains)
        score += most
        if score > best:
            best = score
            chosen[:] = now
        if t % period == 0 and interrupted():
            break
    return assignment_score(0, n, network, given, chosen)
