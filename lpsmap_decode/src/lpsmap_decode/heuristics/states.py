"""Iterated tabu search for networks of tables: perturb the best states, and search again.

A perturbation draws new states for some neighbours, or for all nodes (Lourenço et al. 2003).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.networks.messages import Potentials, finite_scores
from lpsmap_decode.networks.moves import tabu_search
from lpsmap_decode.networks.network import TableNetwork, networks_of

__all__ = ["search_states"]

MOVES = 10
"""Moves of a search, per node."""

SIZES, BRANCHES = (3, 6, 12, 25, 50), 4
"""Nodes that a perturbation changes, and how many of a node's neighbours it reaches."""

RESTARTS = 0.3
"""Fraction of the perturbations that change all nodes."""


def search_states(component: Component) -> Iterator[None]:
    """Offer the states of a network; yield after every search."""
    networks, rng = networks_of(component.part), np.random.default_rng(0)
    network = networks.network
    given, entries = networks.scores(component.eta, component.eta_v)
    states, own, decisive = finite_scores(given, entries)
    potentials = Potentials(states, own, np.where(np.isneginf(given), -np.inf, 0.0))
    n, best = len(network.n_states), -np.inf
    shares, _ = networks.scores(component.means, np.zeros(len(component.eta_v)))
    starts = [_highest(network, shares), _highest(network, states)]
    kept = starts[1]
    while True:
        current = starts.pop() if starts else _perturbed(network, kept, rng)
        score = tabu_search(network, potentials, current, MOVES * n)
        if score > best:
            best, kept = score, current
            if score > -0.5 * decisive:
                component.offer(networks.assignment(current))
        yield


def _highest(network: TableNetwork, numbers: FloatArray) -> IntArray:
    """Return the state of every node with the highest number."""
    first = network.first_state
    found = [int(np.argmax(numbers[a:b])) for a, b in zip(first[:-1], first[1:], strict=True)]
    return np.array(found, dtype=np.int64)


def _perturbed(network: TableNetwork, states: IntArray, rng: np.random.Generator) -> IntArray:
    """Return states with new ones for some nodes near each other, or for all."""
    n, states = len(states), states.copy()
    chosen = np.arange(n) if rng.random() < RESTARTS else _nearby(network, rng)
    states[chosen] = rng.integers(network.n_states[chosen])
    return states


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
