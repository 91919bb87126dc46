"""The bound of a network with some closed states: messages and triplets in turn."""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, kernel
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_decode.networks.best_states import round_beliefs
from lpsmap_decode.networks.cycles import Triplets, pass_triplets
from lpsmap_decode.networks.messages import (
    Potentials,
    Shares,
    largest_table_and_node,
    pass_messages,
)
from lpsmap_decode.networks.network import TableNetwork

__all__ = ["tighten"]

PERIOD = 4
"""Rounds between two checks of progress."""


@kernel
def tighten(
    network: TableNetwork,
    triplets: Triplets,
    given: Potentials,
    shares: Shares,
    own: FloatArray,
    score: float,
    least: float,
    most_rounds: int,
    patience: float,
    chosen: IntArray,
) -> float:
    """Return the bound after up to `most_rounds` of messages, as long as they make progress.

    Parameters
    ----------
    network, triplets
        A network with the pairs of its triplets; there may be no triplets.
    given
        Scores, those of tables without the shares of triplets, and the open states. States that
        cannot be part of an assignment that scores more than `score` are closed.
    shares, own
        The state of messages and triplets.
    least
        Rounds stop when the bound is below this.
    patience
        Rounds continue while this many periods like the last would reach `least`.
    chosen
        Output: the states of a rounding.
    """
    width, n_states = largest_table_and_node(network)
    state, scores = np.zeros(width, dtype=np.int64), np.empty(2 * n_states)
    of_pairs, n = np.empty(3 * n_states * n_states), len(network.n_states)
    bound, last = np.inf, np.inf
    for t in range(most_rounds):
        if len(triplets.nodes) > 0:
            pass_triplets(t % 2 == 0, network, triplets, given, shares, own, of_pairs)
        afresh = t == 0 or len(triplets.nodes) > 0
        for forward in (True, False):
            spare = max(bound - score, 0.0)
            bound = min(
                bound,
                pass_messages(
                    forward, 0, n, network, given, shares, afresh and forward, spare, state
                ),
            )
        if bound <= least or interrupted():
            break
        if t % PERIOD == PERIOD - 1:
            aim = least if least > -np.inf else bound - max(1.0, abs(bound))
            if (last - bound) * patience < bound - aim:
                break
            last = bound
    round_beliefs(0, n, network, given, shares, chosen, scores, state)
    return bound
