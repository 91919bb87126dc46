"""Tabu search for networks of tables, from random states and from what good states suggest.

Good states are perturbed near some node (Lourenço et al. 2003), or two of them are mixed, node by
node (Galinier & Hao 1999). Networks whose tables forbid much have so many deep valleys that most
searches start anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.networks.messages import finite_scores
from lpsmap_decode.networks.moves import tabu_search
from lpsmap_decode.networks.network import TableNetwork, networks_of

__all__ = ["highest_states", "search_states"]

MOVES = 5
"""Moves of a search, per node."""

RESTARTS, PERTURBATIONS = 0.6, 0.5
"""Fraction of the searches that start from random states, and of the others from a perturbation."""

MAX_KEPT, ALIKE = 10, 0.98
"""The number of good states to start from, and the fraction of nodes from which two are alike."""

SIZES, BRANCHES = (3, 6, 12, 25, 50), 4
"""Nodes that a perturbation changes, and how many of a node's neighbours it reaches."""


def search_states(component: Component) -> Iterator[None]:
    """Offer the states of a network; yield after every search."""
    networks, rng = networks_of(component.part), np.random.default_rng(0)
    network = networks.network
    scores = networks.scores(component.eta, component.eta_v)
    potentials, decisive = finite_scores(network, scores)
    potentials.closed[np.isneginf(scores.states)] = -np.inf
    shares = networks.scores(component.means, np.zeros(len(component.eta_v))).states
    starts = [highest_states(network, numbers) for numbers in (shares, potentials.states)]
    best = -np.inf
    kept = _Kept()
    while True:
        current = starts.pop() if starts else kept.start(network, rng)
        score = tabu_search(network, potentials, current, MOVES * len(current))
        kept.add(score, current)
        if score > best:
            best = score
            starts.append(current.copy())
            if score > -0.5 * decisive:
                component.offer(networks.assignment(current))
        yield


class _Kept:
    """Good states that differ, from which searches start."""

    def __init__(self) -> None:
        self._found: list[tuple[float, IntArray]] = []

    def add(self, score: float, states: IntArray) -> None:
        """Keep states in place of the worst, or of those like them if these are worse."""
        for i, (other, known) in enumerate(self._found):
            if (known == states).mean() > ALIKE:
                if score > other:
                    self._found[i] = score, states
                return
        self._found.append((score, states))
        if len(self._found) > MAX_KEPT:
            del self._found[min(range(len(self._found)), key=lambda i: self._found[i][0])]

    def start(self, network: TableNetwork, rng: np.random.Generator) -> IntArray:
        """Return random states, a perturbation of some, or a mixture of two."""
        one, other = (self._found[i][1] for i in rng.integers(len(self._found), size=2))
        states: IntArray = np.where(rng.random(len(one)) < 0.5, one, other)
        if rng.random() < RESTARTS:
            states = rng.integers(network.n_states)
        elif one is other or rng.random() < PERTURBATIONS:
            states, chosen = one.copy(), _nearby(network, rng)
            states[chosen] = rng.integers(network.n_states[chosen])
        return states


def highest_states(network: TableNetwork, numbers: FloatArray) -> IntArray:
    """Return the state of every node with the highest number."""
    first = network.first_state
    found = [int(np.argmax(numbers[a:b])) for a, b in zip(first[:-1], first[1:], strict=True)]
    return np.array(found, dtype=np.int64)


def _nearby(network: TableNetwork, rng: np.random.Generator) -> IntArray:
    """Return nodes that tables connect to a random one."""
    n, size = len(network.n_states), int(rng.choice(SIZES))
    frontier = [int(rng.integers(n))]
    chosen = set(frontier)
    while frontier and len(chosen) < size:
        node = frontier.pop(int(rng.integers(len(frontier))))
        places = network.places[slice(*network.place_offsets[node : node + 2])]
        for table in rng.permutation(network.table[places])[:BRANCHES].tolist():
            scope = network.scope[slice(*network.scope_offsets[table : table + 2])]
            new = set(scope.tolist()) - chosen
            chosen |= new
            frontier += new
    return np.array(sorted(chosen), dtype=np.int64)
