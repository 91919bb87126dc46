"""The bound of a network while some states are closed: messages and triplets in turn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray, by_address
from lpsmap_decode.networks.cycles import Triplets, pass_triplets
from lpsmap_decode.networks.messages import Potentials, Shares, pass_messages
from lpsmap_decode.networks.network import Network
from lpsmap_decode.networks.rounding import round_beliefs

__all__ = ["tighten"]

PERIOD = 4
"""Rounds between two looks at whether it pays."""


class _Memory(NamedTuple):
    """What is written before it is read."""

    state: IntArray
    """A number for each node of the widest table."""
    scores: FloatArray
    """Two numbers for each state of the node that has most."""
    of_pairs: FloatArray
    """Three tables over two such nodes."""


class _Limits(NamedTuple):
    """When rounds end, see `tighten`."""

    score: float
    least: float
    most_rounds: int
    patience: float


@kernel
def tighten(
    network: Network,
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
    """Return a bound, as low as `most_rounds` of messages make it while they pay.

    Parameters
    ----------
    network, triplets
        A network with the pairs of its triplets, of which there may be none.
    given
        Scores, those of the tables without what triplets have of them; and the open states. States
        that cannot be part of an assignment that scores more than `score` are closed.
    shares, own
        Where messages and triplets are at.
    least
        Bounds below this need not be any lower.
    patience
        Rounds go on while so many periods like the last would get there.
    chosen
        The result: the states of a rounding.
    """
    width, n_states = 1, 1
    for f in range(len(network.scope_offsets) - 1):
        width = max(width, network.scope_offsets[f + 1] - network.scope_offsets[f])
    for k in network.n_states:
        n_states = max(n_states, k)
    memory = _Memory(
        np.zeros(width, dtype=np.int64), np.empty(2 * n_states), np.empty(3 * n_states * n_states)
    )
    limits = _Limits(score, least, most_rounds, patience)
    return _tighten(network, triplets, given, shares, own, limits, memory, chosen)


@leaf
def _tighten(
    network: Network,
    triplets: Triplets,
    given: Potentials,
    shares: Shares,
    own: FloatArray,
    limits: _Limits,
    memory: _Memory,
    chosen: IntArray,
) -> float:
    """Return a bound, as `tighten` does, in memory that the caller holds."""
    network, given, shares = by_address(network), by_address(given), by_address(shares)
    score, least, most_rounds, patience = limits
    state, n = memory.state, len(network.n_states)
    bound, last = np.inf, np.inf
    for t in range(most_rounds):
        if len(triplets.nodes) > 0:
            pass_triplets(t % 2 == 0, network, triplets, given, shares, own, memory.of_pairs)
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
    round_beliefs(0, n, network, given, shares, chosen, memory.scores, state)
    return bound
