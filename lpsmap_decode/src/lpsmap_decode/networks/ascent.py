"""Message passing to convergence: bounds of networks, and answers that attain them.

Messages stop when an answer attains their bound. An answer is a rounding or, if all tables are over
two binary nodes, uniform marginals over the best states of each node: the relaxation of such
networks has half-integral solutions (Nemhauser & Trotter 1975).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray, by_address
from lpsmap_decode.networks.best_states import (
    assignment_score,
    round_beliefs,
    share_ties,
    shares_score,
)
from lpsmap_decode.networks.messages import (
    Potentials,
    Shares,
    largest_table_and_node,
    pass_messages,
)
from lpsmap_decode.networks.network import TableNetwork

__all__ = ["AscentResult", "ascend", "empty_result"]

MIN_PERIOD, PERIOD_GROWTH = 4, 4
"""Answers are evaluated every `MIN_PERIOD` pairs of passes, or every ``t // PERIOD_GROWTH`` pairs
after pass t if that is more; at first more often."""

MIN_PASSES = 200
"""Pairs of passes that are made although the bound falls slowly: on Promedas_30 it stands still at
first."""

TIES = (1e-7, 1e-5, 1e-3)
"""Relative differences below which beliefs of a node may count as tied."""


class AscentResult(NamedTuple):
    """Answers and bounds of networks."""

    marginals: FloatArray
    """For each state of all nodes, its share in the best answer."""
    score: FloatArray
    """For each component, the score of that answer."""
    bound: FloatArray
    passes: IntArray
    """For each component, the number of pairs of passes."""


class _Workspace(NamedTuple):
    """Arrays that are written before they are read."""

    state: IntArray
    """A number for each node of the widest table."""
    scores: FloatArray
    """Two numbers for each state of the node with the most states."""
    rounded: IntArray
    """A state of each node."""
    spread: FloatArray
    """A number for each state of all nodes."""


class _Limits(NamedTuple):
    """When passes stop; see `ascend`."""

    most_passes: int
    tol: float
    still: float
    slow: float


def empty_result(network: TableNetwork, n_components: int) -> AscentResult:
    """Return an empty result."""
    score, bound = np.full(n_components, -np.inf), np.full(n_components, np.inf)
    passes = np.zeros(n_components, dtype=np.int64)
    return AscentResult(np.zeros(int(network.first_state[-1])), score, bound, passes)


@leaf
def _take_rounded(
    c: int,
    begin: int,
    end: int,
    network: TableNetwork,
    given: Potentials,
    rounded: IntArray,
    found: AscentResult,
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
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
    spread: FloatArray,
    found: AscentResult,
) -> None:
    """Keep uniform marginals of tied states if they are the best answer so far."""
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
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
    most_passes: int,
    tol: float,
    still: float,
    slow: float,
    found: AscentResult,
) -> None:
    """Pass messages in components until an answer attains the bound, or it stalls.

    Parameters
    ----------
    chosen
        Which components to solve; the nodes of a component begin at ``first_node``.
    of_pairs
        For each component, whether all its tables are over two binary nodes.
    most_passes
        Maximum number of pairs of passes.
    tol, still
        Relative gap that counts as attained, and relative change of the bound that counts as
        stalled.
    slow
        Fraction of the gap below which a fall of the bound, over a fifth of all passes, is too slow
        to close the gap; 0 to go on.
    """
    width, n_states = largest_table_and_node(network)
    work = _Workspace(
        np.zeros(width, dtype=np.int64),
        np.empty(2 * n_states),
        np.zeros(len(network.n_states), dtype=np.int64),
        np.empty(len(found.marginals)),
    )
    limits = _Limits(most_passes, tol, still, slow)
    _ascend(chosen, first_node, of_pairs, network, given, shares, limits, work, found)


@leaf
def _ascend(
    chosen: BoolArray,
    first_node: IntArray,
    of_pairs: BoolArray,
    network: TableNetwork,
    given: Potentials,
    shares: Shares,
    limits: _Limits,
    work: _Workspace,
    found: AscentResult,
) -> None:
    """Pass messages, as `ascend` does, in a given workspace."""
    # leaves that get many arrays for every message take twice as long by value
    network, given, shares = by_address(network), by_address(given), by_address(shares)
    state, scores, rounded, spread = work
    most_passes, tol, still, slow = limits
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
            next_look = t + min(t + 1, max(MIN_PERIOD, t // PERIOD_GROWTH))
            size = max(1.0, abs(found.bound[c]))
            round_beliefs(begin, end, network, given, shares, rounded, scores, state)
            _take_rounded(c, begin, end, network, given, rounded, found)
            if of_pairs[c] and found.bound[c] - found.score[c] > tol * size:
                _take_tied(c, begin, end, network, given, shares, spread, found)
            missing, fell = found.bound[c] - found.score[c], before - found.bound[c]
            if missing <= tol * size or fell <= still * size:
                break
            if t >= MIN_PASSES and missing < np.inf and fell <= slow * missing:
                break
            before = found.bound[c]
