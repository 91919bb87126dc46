"""Search the components without a proof of optimality, in rounds."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, WarmStart
from lpsmap_decode.exact.count_search import CountSpace
from lpsmap_decode.exact.network_search import NetworkSpace
from lpsmap_decode.exact.relaxation_search import RelaxationSpace
from lpsmap_decode.networks.network import networks_of
from lpsmap_decode.results.assignment import is_proved
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.search import Search

__all__ = ["FIRST_NODES", "Decoded", "decode_part"]

SEARCH_GRACE = 0.5
"""Total seconds after the deadline for components that have no assignment yet."""

FIRST_NODES = 64
"""Node limit of each component in the first round; it doubles in each round."""


class Decoded(NamedTuple):
    """An assignment of the variables of a part, and the bounds of every component."""

    chosen: BoolArray
    """For each variable, whether it is on."""
    score: FloatArray
    """For each component; ``-inf`` where no allowed assignment was found."""
    bound: FloatArray
    """For each component, an upper bound on all assignments; ``-inf`` if none is allowed."""
    n_nodes: IntArray
    interrupted: bool


def decode_part(
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    chosen: BoolArray,
    score: FloatArray,
    bound: FloatArray,
    limits: SearchLimits,
    start: Callable[[], WarmStart | None] = lambda: None,
) -> Decoded:
    """Search the components without a proof of optimality.

    Parameters
    ----------
    part
        The part.
    eta, eta_v
        Scores of its variables, and of the additionals of all buckets; ``-inf`` forbids.
    chosen, score
        An assignment of its variables, and its score in each component.
    bound
        For each component, an upper bound on all assignments; NaN to leave the component out.
    limits
        When to stop.
    start
        Returns the final state of the relaxation that gave the bounds.
    """
    chosen, score, bound = chosen.copy(), score.copy(), bound.copy()
    n_nodes = np.zeros(part.n_components, dtype=np.int64)
    doubtful = np.flatnonzero(~is_proved(score, bound, limits.gap) & ~np.isnan(bound))
    searches: dict[int, _ComponentSearch] = {}
    nodes, grace = FIRST_NODES, None
    while doubtful.size and limits.max_nodes != 0:
        # in rounds, so that a slow component leaves time for the others
        most = nodes if limits.max_nodes is None else min(nodes, limits.max_nodes)
        for c in doubtful.tolist():
            if limits.deadline.passed:
                grace = grace or Deadline(SEARCH_GRACE)
                if score[c] > -math.inf or grace.passed:
                    continue
            variables = slice(*part.first_variable[c : c + 2].tolist())
            if c not in searches:
                known = (float(score[c]), chosen[variables]) if score[c] > -math.inf else None
                searches[c] = _start_search(
                    part, c, eta, eta_v, limits, start, known, float(bound[c])
                )
            search, kept = searches[c]
            space = kept or RelaxationSpace(part, c, eta[variables], eta_v, limits.threads)
            report = None if limits.report is None else functools.partial(limits.report, c)
            found = search.run(space, max_nodes=most, deadline=limits.deadline, report=report)
            n_nodes[c], bound[c] = found.n_nodes, min(bound[c], found.bound)
            if found.answer is not None:
                chosen[variables], score[c] = found.answer, found.score
            if found.interrupted:
                return Decoded(chosen, score, bound, n_nodes, True)
        if limits.deadline.passed or most == limits.max_nodes:
            break
        left = [
            c
            for c in doubtful.tolist()
            if c not in searches or not searches[c].search.found.finished
        ]
        doubtful = np.array(left, dtype=np.int64)
        nodes *= 2
    return Decoded(chosen, score, bound, n_nodes, False)


class _ComponentSearch(NamedTuple):
    """The search of a component, and its space if it is kept between rounds."""

    search: Search[Any, BoolArray]
    kept: NetworkSpace | CountSpace | None


def _start_search(
    part: Part,
    c: int,
    eta: FloatArray,
    eta_v: FloatArray,
    limits: SearchLimits,
    start: Callable[[], WarmStart | None],
    known: tuple[float, BoolArray] | None,
    bound: float,
) -> _ComponentSearch:
    """Start the search of a component from a known assignment and bound."""
    if networks_of(part).covered[c]:
        states = NetworkSpace(part, c, eta, eta_v, limits.gap)
        if states.serves:
            return _ComponentSearch(Search(states.root(), limits.gap, known, bound), states)
    variables = slice(*part.first_variable[c : c + 2].tolist())
    if CountSpace.serves(part, c):
        counted = CountSpace(part, c, eta[variables])
        return _ComponentSearch(Search(counted.root(), limits.gap, known, bound), counted)
    space = RelaxationSpace(part, c, eta[variables], eta_v, limits.threads)
    return _ComponentSearch(Search(space.root(start()), limits.gap, known, bound), None)
