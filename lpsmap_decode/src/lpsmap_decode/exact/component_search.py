"""Search the components whose assignment is not proved the best, by turns."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Part,
    SearchLimits,
    WarmStart,
    is_proved,
)
from lpsmap_decode.exact.assignments import Assignments
from lpsmap_decode.exact.counted import Counted
from lpsmap_decode.exact.states import States
from lpsmap_decode.networks.network import networks_of
from lpsmap_decode.search import Search

__all__ = ["FIRST_NODES", "Decoded", "decode_part"]

GRACE = 0.5
"""Seconds after the end for looks at components that have no assignment yet, all together."""

FIRST_NODES = 64
"""Nodes of every component's search before it is another's turn; then twice as many, and so on."""


class Decoded(NamedTuple):
    """One assignment of a part's variables, and what is known of every component."""

    chosen: BoolArray
    """For each variable, whether it is on."""
    score: FloatArray
    """For each component; ``-inf`` where no allowed assignment was found."""
    bound: FloatArray
    """No assignment scores higher; ``-inf`` where none is allowed."""
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
    """Search where an assignment is not proved the best.

    Parameters
    ----------
    part
        The part.
    eta, eta_v
        Scores of its variables, and of the additionals of all buckets; ``-inf`` forbids.
    chosen, score
        An assignment of its variables, and what it scores in each component.
    bound
        For each component, what no assignment scores more than; NaN for those to leave out.
    limits
        When to stop.
    start
        Returns where the relaxation ended that the bounds are of.
    """
    chosen, score, bound = chosen.copy(), score.copy(), bound.copy()
    n_nodes = np.zeros(part.n_components, dtype=np.int64)
    doubtful = np.flatnonzero(~is_proved(score, bound, limits.gap) & ~np.isnan(bound))
    begun: dict[int, _Begun] = {}
    nodes, grace = FIRST_NODES, None
    while doubtful.size and limits.max_nodes != 0:
        # by turns, so that one that takes long leaves time for the others
        most = nodes if limits.max_nodes is None else min(nodes, limits.max_nodes)
        for c in doubtful.tolist():
            if limits.deadline.passed:
                grace = grace or Deadline(GRACE)
                if score[c] > -math.inf or grace.passed:
                    continue
            variables = slice(*part.first_variable[c : c + 2].tolist())
            if c not in begun:
                known = (float(score[c]), chosen[variables]) if score[c] > -math.inf else None
                begun[c] = _begin(part, c, eta, eta_v, limits, start, known, float(bound[c]))
            search, kept = begun[c]
            space = kept or Assignments(part, c, eta[variables], eta_v, limits.threads)
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
            c for c in doubtful.tolist() if c not in begun or not begun[c].search.found.finished
        ]
        doubtful = np.array(left, dtype=np.int64)
        nodes *= 2
    return Decoded(chosen, score, bound, n_nodes, False)


class _Begun(NamedTuple):
    """A component's search, and what it searches if that is kept; others are made anew."""

    search: Search[Any, BoolArray]
    kept: States | Counted | None


def _begin(
    part: Part,
    c: int,
    eta: FloatArray,
    eta_v: FloatArray,
    limits: SearchLimits,
    start: Callable[[], WarmStart | None],
    known: tuple[float, BoolArray] | None,
    bound: float,
) -> _Begun:
    """Begin the search of a component, from an assignment and a bound that are known."""
    if networks_of(part).covered[c]:
        states = States(part, c, eta, eta_v, limits.gap)
        if states.serves:
            return _Begun(Search(states.root(), limits.gap, known, bound), states)
    variables = slice(*part.first_variable[c : c + 2].tolist())
    if Counted.serves(part, c):
        counted = Counted(part, c, eta[variables])
        return _Begun(Search(counted.root(), limits.gap, known, bound), counted)
    space = Assignments(part, c, eta[variables], eta_v, limits.threads)
    return _Begun(Search(space.root(start()), limits.gap, known, bound), None)
