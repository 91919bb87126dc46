"""The best bound of networks by messages, and what meets it.

Messages end where an answer scores as much as they bound. An answer is a rounding; or, where all
tables are over two binary nodes, marginals that share each node's best states evenly: the
relaxation of such networks has whole and half solutions (Nemhauser & Trotter 1975).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray, by_address
from lpsmap_decode.networks.messages import Potentials, Shares, pass_messages
from lpsmap_decode.networks.network import Network
from lpsmap_decode.networks.rounding import (
    assignment_score,
    round_beliefs,
    share_ties,
    shares_score,
)

__all__ = ["Ascent", "ascend", "new_ascent"]

FEWEST, SELDOM = 4, 4
"""Pairs of passes between two looks at answers, but at the beginning; and as many times as many
have been made before that are more."""

TIES = (1e-7, 1e-5, 1e-3)
"""Differences of beliefs that may count as none, relative to the best of a node."""


class Ascent(NamedTuple):
    """What was found of networks."""

    marginals: FloatArray
    """For each state of all nodes, its share in the best answer."""
    score: FloatArray
    """For each component, what that scores."""
    bound: FloatArray
    passes: IntArray
    """For each component, the pairs of passes that were made."""


class _Memory(NamedTuple):
    """What is written before it is read."""

    state: IntArray
    """A number for each node of the widest table."""
    scores: FloatArray
    """Two numbers for each state of the node that has most."""
    rounded: IntArray
    """A state of each node."""
    spread: FloatArray
    """A number for each state of all nodes."""


class _Limits(NamedTuple):
    """When passes end, see `ascend`."""

    most_passes: int
    tol: float
    still: float


def new_ascent(network: Network, n_components: int) -> Ascent:
    """Return that nothing was found yet."""
    score, bound = np.full(n_components, -np.inf), np.full(n_components, np.inf)
    passes = np.zeros(n_components, dtype=np.int64)
    return Ascent(np.zeros(int(network.first_state[-1])), score, bound, passes)


@leaf
def _take_rounded(
    c: int,
    begin: int,
    end: int,
    network: Network,
    given: Potentials,
    rounded: IntArray,
    found: Ascent,
) -> None:
    """Keep an assignment of a component if it is the best answer so far."""
    score = assignment_score(begin, end, network, given, rounded)
    if score > found.score[c]:
        found.score[c] = score
        found.marginals[network.first_state[begin] : network.first_state[end]] = 0.0
        for i in range(begin, end):
            found.marginals[network.first_state[i] + rounded[i]] = 1.0


@leaf
def _take_tied(
    c: int,
    begin: int,
    end: int,
    network: Network,
    given: Potentials,
    shares: Shares,
    spread: FloatArray,
    found: Ascent,
) -> None:
    """Keep even shares of tied states if they are the best answer so far."""
    for tied in TIES:
        if share_ties(begin, end, network, given, shares, tied, spread):
            score = shares_score(begin, end, network, given, spread)
            if score > found.score[c]:
                found.score[c] = score
                for s in range(network.first_state[begin], network.first_state[end]):
                    found.marginals[s] = spread[s]


@kernel
def ascend(
    chosen: BoolArray,
    first_node: IntArray,
    of_pairs: BoolArray,
    network: Network,
    given: Potentials,
    shares: Shares,
    most_passes: int,
    tol: float,
    still: float,
    found: Ascent,
) -> None:
    """Pass messages in some components until an answer meets the bound, or it stands still.

    Parameters
    ----------
    chosen
        Which components; a component's nodes begin at ``first_node``.
    of_pairs
        For each component, whether all its tables are over two binary nodes.
    most_passes
        As many pairs of passes at most.
    tol, still
        How near is met, and how little is still, relative to the bound.
    """
    width, n_states = 1, 1
    for f in range(len(network.scope_offsets) - 1):
        width = max(width, network.scope_offsets[f + 1] - network.scope_offsets[f])
    for k in network.n_states:
        n_states = max(n_states, k)
    memory = _Memory(
        np.zeros(width, dtype=np.int64),
        np.empty(2 * n_states),
        np.zeros(len(network.n_states), dtype=np.int64),
        np.empty(len(found.marginals)),
    )
    limits = _Limits(most_passes, tol, still)
    _ascend(chosen, first_node, of_pairs, network, given, shares, limits, memory, found)


@leaf
def _ascend(
    chosen: BoolArray,
    first_node: IntArray,
    of_pairs: BoolArray,
    network: Network,
    given: Potentials,
    shares: Shares,
    limits: _Limits,
    memory: _Memory,
    found: Ascent,
) -> None:
    """Pass messages, as `ascend` does, in memory that the caller holds."""
    network, given, shares = by_address(network), by_address(given), by_address(shares)
    state, scores, rounded, spread = memory
    most_passes, tol, still = limits
    for c in range(len(chosen)):
        if not chosen[c]:
            continue
        begin, end = first_node[c], first_node[c + 1]
        before, next_look = np.inf, 0
        for t in range(most_passes):
            for forward in (True, False):
                found.bound[c] = pass_messages(
                    forward, begin, end, network, given, shares, t == 0, np.inf, state
                )
            found.passes[c] = t + 1
            if interrupted():
                return
            if t < next_look and t + 1 < most_passes:
                continue
            next_look = t + min(t + 1, max(FEWEST, t // SELDOM))
            size = max(1.0, abs(found.bound[c]))
            round_beliefs(begin, end, network, given, shares, rounded, scores, state)
            _take_rounded(c, begin, end, network, given, rounded, found)
            if of_pairs[c] and found.bound[c] - found.score[c] > tol * size:
                _take_tied(c, begin, end, network, given, shares, spread, found)
            missing, fell = found.bound[c] - found.score[c], before - found.bound[c]
            if missing <= tol * size or fell <= still * size:
                break
            before = found.bound[c]
