"""Large-neighbourhood search for networks of tables: all nodes but a few are solved anew exactly.

The blocks are random, and grow while they improve nothing; see `lpsmap_decode.networks.blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.states import highest_states
from lpsmap_decode.networks.blocks import block_order, improve_block
from lpsmap_decode.networks.elimination import MAX_NODES, neighbours_of
from lpsmap_decode.networks.messages import finite_scores
from lpsmap_decode.networks.network import networks_of

__all__ = ["search_blocks"]

MIN_ENTRIES, MAX_ENTRIES, GROWTH = 1e3, 1e6, 1.2
"""Entries of the joined tables, at first and at most; and their growth without an improvement."""


def search_blocks(component: Component) -> Iterator[None]:
    """Improve the states of blocks; yield after every block."""
    networks, rng = networks_of(component.part), np.random.default_rng(0)
    network = networks.network
    if len(network.n_states) > MAX_NODES:
        return
    scores = networks.scores(component.eta, component.eta_v)
    potentials, decisive = finite_scores(network, scores)
    potentials.closed[np.isneginf(scores.states)] = -np.inf
    neighbours, of_none = neighbours_of(network), np.zeros(len(component.eta_v))
    chosen = highest_states(network, networks.scores(component.means, of_none).states)
    limit, score = MIN_ENTRIES, -np.inf
    while True:
        if component.score > max(score, -0.5 * decisive):
            on = np.where(component.chosen, 1.0, 0.0)
            chosen = highest_states(network, networks.scores(on, of_none).states)
        weight = rng.uniform(0.5, 1.5, len(chosen))
        order = block_order(network.n_states, neighbours.copy(), weight, limit)
        before, score = score, improve_block(network, potentials, order, chosen)
        if score > component.score and score > -0.5 * decisive:
            component.offer(networks.assignment(chosen))
        if score <= before:
            limit = min(GROWTH * limit, MAX_ENTRIES)
        yield
