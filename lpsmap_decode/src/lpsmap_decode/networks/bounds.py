"""The bound of a network with some closed states: messages and triplets in turn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_decode.networks.best_states import round_beliefs
from lpsmap_decode.networks.cycles import Triplets, pass_triplets
from lpsmap_decode.networks.messages import Potentials, Shares, pass_messages
from lpsmap_decode.networks.network import TableNetwork

__all__ = ["tighten"]

PERIOD = 4
"""Rounds between two checks of progress."""


class _Workspace(NamedTuple):
    """Arrays that are written before they are read."""

    state: IntArray
    """A number for each node of the widest table."""
    scores: FloatArray
    """Two numbers for each state of the node with the most states."""
    of_pairs: FloatArray
    """Three tables over two such nodes."""


class _Limits(NamedTuple):
    """When rounds stop; see `tighten`."""

    score: float
    least: float
    most_rounds: int
    patience: float


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
    width, n_states = 1, 1
    for f in range(len(network.scope_offsets) - 1):
        width = max(width, network.scope_offsets[f + 1] - network.scope_offsets[f])
    for k in network.n_states:
        n_states = max(n_states, k)
    work = _Workspace(
        np.zeros(width, dtype=np.int64), np.empty(2 * n_states), np.empty(3 * n_states * n_states)
    )
    limits = _Limits(score, least, most_rounds, patience)
    return _tighten(network, triplets, given, shares, own, limits, work, chosen)


@leaf
def _tighten(
    network: TableNetwork,
    triplets: Triplets,
    given: Potentials,
    shares: Shares,
    own: FloatArray,
    limits: _Limits,
    work: _Workspace,
    chosen: IntArray,
) -> float:
    """Return a bound, as `tighten` does, in a given workspace."""
    score, least, most_rounds, patience = limits
    state, n = work.state, len(network.n_states)
    bound, last = np.inf, np.inf
    for t in range(most_rounds):
        if len(triplets.nodes) > 0:
            pass_triplets(t % 2 == 0, network, triplets, given, shares, own, work.of_pairs)
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
    round_beliefs(0, n, network, given, shares, chosen, work.scores, state)
    return bound
