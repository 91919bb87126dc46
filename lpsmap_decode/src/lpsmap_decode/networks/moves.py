"""Local search on a network by tabu moves: one node changes its state, and may not soon return.

Tabu search (Glover 1989): the best move is made even if it lowers the score, but a state that was
left is not entered again for a while, unless that gives a new best score. A move updates the scores
of its neighbours' states, given the other nodes, and only their best moves are found anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_decode.networks.best_states import assignment_score
from lpsmap_decode.networks.messages import Potentials
from lpsmap_decode.networks.network import TableNetwork

__all__ = ["tabu_search"]

SHORTEST = 10
"""Minimum number of moves before a state that was left may be entered again. A random number below
this is added."""

POLL_PERIOD = 1000
"""Number of moves between two checks for interrupts."""


class Workspace(NamedTuple):
    """Work arrays of a search."""

    state_scores: FloatArray
    """For every state, its score given the states of the other nodes."""
    tabu_until: IntArray
    """For every state, the first move that may enter it again."""
    stale: BoolArray
    """For every node, whether its best moves are out of date."""
    gains: FloatArray
    """(2, N) For every node, the gains of its best allowed move, and of its best move."""
    moves: IntArray
    """(2, N) The states that they enter."""


@leaf
def _add_table(
    f: int,
    network: TableNetwork,
    potentials: Potentials,
    assignment: IntArray,
    state_scores: FloatArray,
) -> None:
    """Add a table to the scores of its nodes' states, given the other states."""
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
            state_scores[at + x] += potentials.entries[base + stride * x]
        stride *= network.n_states[i]


@leaf
def _update_table(
    place: int,
    old: int,
    network: TableNetwork,
    potentials: Potentials,
    assignment: IntArray,
    work: Workspace,
) -> None:
    """Update the scores of the other nodes' states after the node at `place` has left state `old`.

    Their best moves become stale.
    """
    f, entries = network.table[place], potentials.entries
    lo, hi = network.scope_offsets[f], network.scope_offsets[f + 1]
    entry, stride, back = potentials.tables[f], 1, 0
    for p in range(hi - 1, lo - 1, -1):
        state = assignment[network.scope[p]]
        entry += stride * state
        back = stride * (old - state) if p == place else back
        stride *= network.n_states[network.scope[p]]
    stride = 1
    for p in range(hi - 1, lo - 1, -1):
        i = network.scope[p]
        if p != place:
            at, base = network.first_state[i], entry - stride * assignment[i]
            for x in range(network.n_states[i]):
                e = base + stride * x
                work.state_scores[at + x] += entries[e] - entries[e + back]
            work.stale[i] = True
        stride *= network.n_states[i]


@leaf
def _update_moves(
    i: int,
    t: int,
    network: TableNetwork,
    potentials: Potentials,
    assignment: IntArray,
    work: Workspace,
) -> None:
    """Find the best moves of a node."""
    here, scores = network.first_state[i] + assignment[i], work.state_scores
    work.gains[:, i] = -np.inf
    for u in range(network.first_state[i], network.first_state[i + 1]):
        gain = scores[u] - scores[here] + potentials.closed[u]
        if u != here and gain > work.gains[1, i]:
            work.gains[1, i], work.moves[1, i] = gain, u
        if u != here and work.tabu_until[u] <= t and gain > work.gains[0, i]:
            work.gains[0, i], work.moves[0, i] = gain, u
    work.stale[i] = False


@leaf
def _best_node(
    t: int,
    enough: float,
    network: TableNetwork,
    potentials: Potentials,
    assignment: IntArray,
    work: Workspace,
) -> tuple[int, int]:
    """Return the node of the best move, and whether the move is tabu but gains more than enough."""
    node, tabu_node, most, tabu_most = 0, 0, -np.inf, -np.inf
    for i in range(len(network.n_states)):
        if work.stale[i]:
            _update_moves(i, t, network, potentials, assignment, work)
        if work.gains[0, i] > most:
            most, node = work.gains[0, i], i
        if work.gains[1, i] > tabu_most:
            tabu_most, tabu_node = work.gains[1, i], i
    return (tabu_node, 1) if tabu_most > enough else (node, 0)


@kernel
def tabu_search(
    network: TableNetwork, potentials: Potentials, assignment: IntArray, n_moves: int
) -> float:
    """Make moves from an assignment; overwrite it with the best one, and return the best score.

    Only open states are entered.
    """
    n, n_all, current = len(network.n_states), len(potentials.states), assignment.copy()
    work = Workspace(
        potentials.states.copy(),
        np.zeros(n_all, dtype=np.int64),
        np.ones(n, dtype=np.bool_),
        np.empty((2, n)),
        np.empty((2, n), dtype=np.int64),
    )
    for f in range(len(network.scope_offsets) - 1):
        _add_table(f, network, potentials, current, work.state_scores)
    score = assignment_score(0, n, network, potentials, current)
    highest, random = score, 1
    left = np.zeros((2 * SHORTEST, 2), dtype=np.int64)
    for t in range(n_moves):
        for k in range(len(left)):
            if work.tabu_until[left[k, 1]] == t:
                work.stale[left[k, 0]] = True
        enough = highest + 1e-9 * (1.0 + abs(highest)) - score
        i, kind = _best_node(t, enough, network, potentials, current, work)
        gain, old = work.gains[kind, i], current[i]
        if gain == -np.inf:
            break
        random = (1103515245 * random + 12345) % (1 << 31)
        left[t % len(left)] = i, network.first_state[i] + old
        work.tabu_until[left[t % len(left), 1]] = t + 1 + SHORTEST + (random >> 16) % SHORTEST
        current[i] = work.moves[kind, i] - network.first_state[i]
        work.stale[i] = True
        for place in network.places[network.place_offsets[i] : network.place_offsets[i + 1]]:
            _update_table(place, old, network, potentials, current, work)
        score += gain
        if score > highest:
            highest = score
            assignment[:] = current
        if t % POLL_PERIOD == 0 and interrupted():
            break
    return assignment_score(0, n, network, potentials, assignment)
