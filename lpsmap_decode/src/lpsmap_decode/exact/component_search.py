"""Search the components without a proof of optimality, in rounds."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, WarmStart, Watch
from lpsmap_decode.exact.component_copies import copies_of
from lpsmap_decode.exact.count_search import CountSpace
from lpsmap_decode.exact.network_search import NetworkSpace
from lpsmap_decode.exact.relaxation_search import RelaxationSpace
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.portfolio import Portfolio
from lpsmap_decode.networks.network import networks_of
from lpsmap_decode.results.score_units import is_proved
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.search import Search

__all__ = ["FIRST_NODES", "Decoded", "decode_part", "space_of"]

LARGE = 2000
"""Links of a large component, whose first nodes take long."""

FEW_NODES, SECONDS_OF_FEW = 8, 0.02
"""The nodes of a large component before its heuristics, if nodes are fast, and their seconds."""

SHARE_OF_FIRST, LONGEST_FIRST = 0.7, 10.0
"""The share of the time that is left for heuristics until the first assignment, and the seconds."""

SHARE_OF_LARGE, SECONDS_A_LINK = 0.5, 1e-4
"""The same for heuristics that improve the assignment of a large component before the search; the
seconds are those of each link, but at most `LONGEST_FIRST`."""

SHARE_OF_HEURISTICS, SHARE_IF_STUCK, STUCK = 0.5, 3.0, 0.1
"""Time of the heuristics after a round, relative to that of the round: half as much after every
round in which they improve nothing; more after rounds that close less than a fraction `STUCK` of
the gap."""

SECONDS = 0.5
"""Seconds of the first round of a component; they double in each round."""

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
    means: FloatArray,
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
        Scores of its variables, and of the additionals of all buckets, in their unit; ``-inf``
        forbids.
    means
        Marginals of its variables.
    chosen, score
        An assignment of its variables, and its score in each component.
    bound
        For each component, an upper bound on all assignments; NaN to leave the component out.
    limits
        When to stop.
    start
        Returns the final state of the relaxation that gave the bounds.
    """
    n_nodes = np.zeros(part.n_components, dtype=np.int64)
    found = Decoded(chosen.copy(), score.copy(), bound.copy(), n_nodes, False)
    scores = eta, eta_v, means
    doubtful = np.flatnonzero(~is_proved(score, bound, limits.gap) & ~np.isnan(bound)).tolist()
    searches: dict[int, _ComponentSearch] = {}
    nodes, grace = FIRST_NODES, None
    while doubtful:
        # in rounds, so that a slow component leaves time for the others
        for c in doubtful:
            if limits.deadline.passed:
                grace = grace or Deadline(SEARCH_GRACE)
                if found.score[c] > -math.inf or grace.passed:
                    continue
            if c not in searches:
                searches[c] = _ComponentSearch(part, c, scores, found, limits, start)
            if searches[c].continue_to(nodes, grace or limits.deadline):
                return found._replace(interrupted=True)
        if limits.deadline.passed:
            break
        doubtful = [c for c in doubtful if not (c in searches and searches[c].finished)]
        nodes *= 2
    return found


class _ComponentSearch:
    """The search of a component, with heuristics before it and between its rounds.

    The arguments are those of `decode_part`, and its result `found`, which is updated.
    """

    def __init__(
        self,
        part: Part,
        component: int,
        scores: tuple[FloatArray, FloatArray, FloatArray],
        found: Decoded,
        limits: SearchLimits,
        start: Callable[[], WarmStart | None],
    ) -> None:
        self._part, self._c, self._scores = part, component, scores
        self._found, self._limits, self._start = found, limits, start
        self._variables = slice(*part.first_variable[component : component + 2].tolist())
        self._search: Search[Any, BoolArray] | None = None
        self._kept: NetworkSpace | CountSpace | None = None
        self._heuristics: Portfolio | None = None
        self._share = SHARE_OF_HEURISTICS
        self.finished = self._interrupted = False

    def continue_to(self, most: int, deadline: Deadline) -> bool:
        """Search up to a number of nodes in total; return whether Ctrl-C interrupted it."""
        c, limits, before = self._c, self._limits, self._found.score[self._c]
        bound = self._found.bound[c]
        limit = np.inf if limits.max_nodes is None else limits.max_nodes
        begin = time.perf_counter()
        if self._heuristics is None:
            self._heuristics = Portfolio(self._component())
            self._begin(deadline)
        is_network = networks_of(self._part).covered[c]
        late = limits.deadline.passed and not is_network
        if self.finished or self._interrupted or late or limit == 0:
            self.finished |= limit == 0
            return self._interrupted
        # slow nodes leave time for heuristics
        self._evaluate_to(most, Deadline(SECONDS * most / FIRST_NODES, within=limits.deadline))
        at_limit = self._found.n_nodes[c] == limits.max_nodes
        self.finished |= at_limit and limits.precedes_solver
        missing = self._found.score[c] == -np.inf and not is_network
        ends_soon = isinstance(self._kept, NetworkSpace) and self._kept.ends_soon
        if missing and not (self.finished or self._interrupted):
            self._find_first(deadline)
        elif not (self.finished or self._interrupted or ends_soon):
            stuck = bound - self._found.bound[c] < STUCK * (bound - before)
            share = SHARE_IF_STUCK if stuck and not at_limit else self._share
            seconds = share * (time.perf_counter() - begin)
            self._run_heuristics(Deadline(seconds, within=limits.deadline))
            better = self._found.score[c] > before
            self._share = SHARE_OF_HEURISTICS if better else 0.5 * self._share
        self.finished |= at_limit
        return self._interrupted

    def _begin(self, deadline: Deadline) -> None:
        """Begin with heuristics, unless a few nodes probably suffice."""
        part, c, limits = self._part, self._c, self._limits
        stopped = limits.max_nodes == 0 or limits.deadline.passed
        if part.sizes[c] < LARGE and not stopped:
            return
        if CountSpace.serves(part, c) and not stopped:
            soon = Deadline(SECONDS_OF_FEW, within=deadline)
            with Watch(within=soon):
                self._evaluate_to(FEW_NODES, soon)
        if not (self.finished or self._interrupted):
            self._find_first(deadline)

    def _evaluate_to(self, most: int, until: Deadline) -> None:
        """Evaluate nodes, up to a number in total."""
        c, limits, (eta, eta_v, _) = self._c, self._limits, self._scores
        limit = most if limits.max_nodes is None else min(most, limits.max_nodes)
        search = self._search = self._search or self._begin_search()
        space = self._kept or RelaxationSpace(
            self._part, c, eta[self._variables], eta_v, limits.threads
        )
        report = None if limits.report is None else functools.partial(limits.report, c)
        found = search.run(space, max_nodes=limit, deadline=until, report=report)
        self._found.n_nodes[c] = found.n_nodes
        self._found.bound[c] = min(self._found.bound[c], found.bound)
        if found.answer is not None:
            self._take(found.score, found.answer)
        self.finished = found.finished or self._is_proved  # maybe by the last node
        self._interrupted |= found.interrupted

    @property
    def _is_proved(self) -> bool:
        """Whether the bound proves that the best score so far is the best."""
        found, own = self._found, [self._c]
        return bool(is_proved(found.score[own], found.bound[own], self._limits.gap)[0])

    def _component(self) -> Component:
        """Return the component by itself, for heuristics."""
        c, part = self._c, self._part
        eta, eta_v, means = self._scores
        alone = part.n_components == 1
        return Component(
            part if alone else copies_of(part, c, 1),
            eta[self._variables],
            eta_v if alone else eta_v[part.additional_component == c],
            means[self._variables],
        )

    def _find_first(self, deadline: Deadline) -> None:
        """Let heuristics find an assignment, and improve that of a large component."""
        assert self._heuristics is not None
        c, part, component = self._c, self._part, self._heuristics.component
        if networks_of(part).covered[c]:  # the search itself soon finds one
            return
        if self._found.score[c] == -np.inf:
            first = Deadline(min(SHARE_OF_FIRST * deadline.left, LONGEST_FIRST), within=deadline)
            self._run_heuristics(first, until_found=True)
            if deadline.passed and not component.found:
                self._run_heuristics(Deadline(SEARCH_GRACE), until_found=True)
        if part.sizes[c] >= LARGE and self._limits.max_nodes != 0:
            most = min(SECONDS_A_LINK * float(part.sizes[c]), LONGEST_FIRST)
            seconds = min(SHARE_OF_LARGE * deadline.left, most)
            self._run_heuristics(Deadline(seconds, within=deadline))

    def _run_heuristics(self, deadline: Deadline, until_found: bool = False) -> None:
        """Run the heuristics, and take over what they find."""
        assert self._heuristics is not None
        component = self._heuristics.component
        if self._found.score[self._c] > component.score:
            component.offer(self._found.chosen[self._variables])
        try:
            self._heuristics.run(deadline, until_found)
        except KeyboardInterrupt:
            self._interrupted = True
        if component.found:
            self._take(component.score, component.chosen)
            if self._search is not None:
                self._search.offer(component.score, component.chosen)
        if component.exhausted:
            self._found.bound[self._c] = min(self._found.bound[self._c], component.highest)
            self.finished = self._is_proved

    def _take(self, score: float, chosen: BoolArray) -> None:
        """Take over an assignment if it is better."""
        if score > self._found.score[self._c]:
            self._found.score[self._c] = score
            self._found.chosen[self._variables] = chosen

    def _begin_search(self) -> Search[Any, BoolArray]:
        """Start the search from the known assignment and bound."""
        c, limits, found, (eta, eta_v, _) = self._c, self._limits, self._found, self._scores
        known = None
        if found.score[c] > -math.inf:
            known = float(found.score[c]), found.chosen[self._variables].copy()
        numbers = eta, eta_v, limits.gap, limits.threads
        space, root = space_of(self._part, c, *numbers, self._start)
        self._kept = None if isinstance(space, RelaxationSpace) else space
        return Search(root, limits.gap, known, float(found.bound[c]))


def space_of(
    part: Part,
    component: int,
    eta: FloatArray,
    eta_v: FloatArray,
    gap: float,
    threads: int,
    start: Callable[[], WarmStart | None],
) -> tuple[NetworkSpace | CountSpace | RelaxationSpace, Any]:
    """Return the search space that suits a component, and its root.

    `start` returns the final state of a relaxation of the part.
    """
    own = eta[slice(*part.first_variable[component : component + 2].tolist())]
    if networks_of(part).covered[component]:
        states = NetworkSpace(part, component, eta, eta_v, gap)
        if states.serves:
            return states, states.root()
    if CountSpace.serves(part, component):
        counted = CountSpace(part, component, own)
        return counted, counted.root()
    relaxed = RelaxationSpace(part, component, own, eta_v, threads)
    return relaxed, relaxed.root(start())
