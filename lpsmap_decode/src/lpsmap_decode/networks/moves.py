"""Local search on a network by tabu moves: one node changes its state, and may not soon return.

Tabu search (Glover 1989): the best move is made even if it lowers the score, but a state that was
left is not entered again for a while, unless that gives a new best score. The score of every state,
given the other nodes, is updated incrementally.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_decode.networks.best_states import assignment_score
from lpsmap_decode.networks.messages import Potentials
from lpsmap_decode.networks.network import TableNetwork

__all__ = ["tabu_search"]

SHORTEST = 10
"""Minimum number of moves before a state that was left may be entered again. A random number below
this is added."""

POLL_PERIOD = 1_000_000
"""Number of states that are compared between two checks for interrupts."""


@leaf
def _add_table(
    f: int,
    sign: float,
    network: TableNetwork,
    potentials: Potentials,
    assignment: IntArray,
    state_scores: FloatArray,
) -> None:
    """Add `sign` times a table to the scores of its nodes' states, given the other states."""
    lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
    entry, stride = potentials.tables[f], 1
    for p in range(hi - 1, lo - 1, -1):
        entry += stride * assignment[network.scope[p]]
        stride *= network.n_states[network.scope[p]]
    stride = 1
    for p in range(hi - 1, lo - 1, -1):
        i = network.scope[p]
        at, base = network.first_state[i], entry - stride * assignment[i]
        for x in range(network.n_states[i]):
            state_scores[at + x] += sign * potentials.entries[base + stride * x]
        stride *= network.n_states[i]


@kernel
def tabu_search(
    network: TableNetwork, potentials: Potentials, assignment: IntArray, n_moves: int
) -> float:
    """Make moves from an assignment; overwrite it with the best one, and return the best score.

    Only open states are entered.
    """
    n, current = len(network.n_states), assignment.copy()
    state_scores, owner = potentials.states.copy(), np.empty(len(potentials.states), dtype=np.int64)
    for i in range(n):
        owner[network.first_state[i] : network.first_state[i + 1]] = i
    for f in range(len(network.scope_offsets) - 1):
        _add_table(f, 1.0, network, potentials, current, state_scores)
    score = assignment_score(0, n, network, potentials, current)
    highest, tabu_until, random = score, np.zeros(len(owner), dtype=np.int64), 1
    period = 1 + POLL_PERIOD // max(1, len(owner))
    for t in range(n_moves):
        best_gain, move = -np.inf, -1
        for u in range(len(owner)):
            i = owner[u]
            here = network.first_state[i] + current[i]
            gain = state_scores[u] - state_scores[here] + potentials.closed[u]
            allowed = tabu_until[u] <= t or score + gain > highest + 1e-9 * (1.0 + abs(highest))
            if u != here and allowed and gain > best_gain:
                best_gain, move = gain, u
        if move < 0:
            break
        i = owner[move]
        places = network.places[network.place_offsets[i] : network.place_offsets[i + 1]]
        for place in places:
            _add_table(network.table[place], -1.0, network, potentials, current, state_scores)
        random = (1103515245 * random + 12345) % (1 << 31)
        old_state = network.first_state[i] + current[i]
        tabu_until[old_state] = t + 1 + SHORTEST + (random >> 16) % SHORTEST
        current[i] = move - network.first_state[i]
        for place in places:
            _add_table(network.table[place], 1.0, network, potentials, current, state_scores)
        score += best_gain
        if score > highest:
            highest = score
            assignment[:] = current
        if t % period == 0 and interrupted():
            break
    return assignment_score(0, n, network, potentials, assignment)
