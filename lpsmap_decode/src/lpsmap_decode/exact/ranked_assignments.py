"""The k best assignments of a graph, or of every component of it."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from lpsmap_core import Solution
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Watch,
    reduce_dominant_scores,
)
from lpsmap_decode.exact.combinations import Combination, combinations
from lpsmap_decode.exact.count_search import CountSpace
from lpsmap_decode.exact.far_scores import in_given_scale
from lpsmap_decode.exact.k_best import Ranking
from lpsmap_decode.exact.next_best import next_best
from lpsmap_decode.exact.relaxation_search import RelaxationSpace
from lpsmap_decode.exact.single_factors import two_best
from lpsmap_decode.results.assignment import Assignment, assignment_of
from lpsmap_decode.results.score_units import score_units
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.solvers.external_solver import MIN_GAP
from lpsmap_decode.solvers.map_solver import MapSolver
from lpsmap_dynamic import best_additionals

__all__ = ["RankedAssignments", "ranked_assignments"]

MAX_SPACES = 8
"""Number of search spaces that are kept. They are large, and made anew if they are needed again."""

NONE = -1
"""The rank of a component without an assignment."""


class RankedAssignments(Sequence[Assignment]):
    """The best assignments of a graph, the best first; each is built on first access."""

    def __init__(self, n: int, make: Callable[[int], Assignment]) -> None:
        self._n, self._make = n, functools.cache(make)

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, j: int) -> Assignment: ...
    @overload
    def __getitem__(self, j: slice) -> list[Assignment]: ...
    def __getitem__(self, j: int | slice) -> Assignment | list[Assignment]:
        if isinstance(j, slice):
            return [self[i] for i in range(*j.indices(self._n))]
        return self._make(range(self._n)[j])

    def __repr__(self) -> str:
        return f"RankedAssignments({self._n} of them)"


def ranked_assignments(
    relaxation: Solution,
    k: int,
    limits: SearchLimits,
    by_component: bool,
    solver: MapSolver | None = None,
) -> RankedAssignments:
    """Return the k best assignments of a graph, or of each of its components.

    Parameters
    ----------
    relaxation
        The solution of LP-MAP.
    k
        The number of assignments.
    limits
        When to stop.
    by_component
        Whether entry j combines the j-th best of every component, rather than being the j-th best
        of the graph.
    solver
        A solver that supports the graph, for components that need many nodes.
    """
    ranked = _RankedGraph(relaxation, limits, solver)
    with Watch(within=limits.deadline):
        n, entry = ranked.each(k) if by_component else ranked.together(k)
    ranked.close()
    return RankedAssignments(n, lambda j: ranked.assignment(entry(j)))


class _Entry(NamedTuple):
    """The ranks of all components, and which variables in no factor have their second value."""

    ranks: IntArray
    flipped: IntArray
    loss: FloatArray
    """For each component, the loss of the assignments with which this one competes."""


class _RankedGraph:
    """The rankings of all components, and the variables in no factor."""

    def __init__(
        self, relaxation: Solution, limits: SearchLimits, solver: MapSolver | None
    ) -> None:
        self._graph, self._limits = relaxation.graph, limits
        part = self._graph.layout.part
        self._given = self._graph.of_part()
        eta, eta_v, far = reduce_dominant_scores(part, *self._given)
        start = relaxation.solved.end()

        @functools.lru_cache(MAX_SPACES)
        def space(c: int) -> CountSpace | RelaxationSpace:
            scores = eta[slice(*part.first_variable[c : c + 2].tolist())]
            if CountSpace.serves(part, c):
                return CountSpace.probed(part, c, scores)
            return RelaxationSpace(part, c, scores, eta_v, limits.threads)

        def root(c: int) -> Any:
            known = space(c)
            return known.root() if isinstance(known, CountSpace) else known.root(start)

        self._eta_v, self._spaces, self._far = eta_v, space, far
        known = two_best(part, eta, eta_v, limits.deadline)
        units = score_units(part, eta, eta_v).tolist()
        self._rankings = [
            Ranking(
                functools.partial(space, c),
                functools.partial(root, c),
                limits,
                known.get(c),
                None if solver is None or far[c] else next_best(self._graph, c, solver, limits),
                units[c],
            )
            for c in range(part.n_components)
        ]
        self._ranked = ~self._graph.non_finite
        alone = (self._graph.layout.component < 0) & np.isfinite(self._graph.scores)
        self._free = np.flatnonzero(alone)

    def close(self) -> None:
        """End all searches."""
        self._spaces.cache_clear()
        for ranking in self._rankings:
            ranking.close()

    def together(self, k: int) -> tuple[int, Callable[[int], _Entry]]:
        """Return the number of best of the graph, up to k, and a function that returns each.

        If a component has no assignment, there is one entry.
        """
        n, first = len(self._rankings), self._first()
        chosen: list[Combination] = []
        lists = n + len(self._free) if (first[self._ranked] != NONE).all() else 0
        for combination in itertools.islice(combinations(lists, self._loss), k):
            chosen.append(combination)
            if self._limits.deadline.passed:
                break
        losses = [sum(self._loss(*pair) for pair in combination) for combination in chosen]
        order = sorted(range(len(chosen)), key=losses.__getitem__)

        def entry(j: int) -> _Entry:
            loss, combination, ranks = losses[order[j]], chosen[order[j]], first.copy()
            for c, rank in combination:
                if c < n:
                    ranks[c] = rank
            flipped = self._free[[c - n for c, _ in combination if c >= n]]
            return _Entry(ranks, flipped, np.full(n, loss))

        return len(chosen), entry

    def each(self, k: int) -> tuple[int, Callable[[int], _Entry]]:
        """Return the same for every component by itself, as far as any component has so many."""
        last = self._first()
        for c in np.flatnonzero(last != NONE).tolist():
            self._rankings[c].has(k - 1)
            last[c] = len(self._rankings[c].scores) - 1

        def entry(j: int) -> _Entry:
            ranks = np.where(j <= last, j, NONE)
            loss = [self._loss(c, r) if r > 0 else 0.0 for c, r in enumerate(ranks.tolist())]
            return _Entry(ranks, self._free[:0], np.array(loss))

        return max(1, int(last.max(initial=0)) + 1), entry

    def _first(self) -> IntArray:
        """Return the rank 0 for each component, or `NONE`."""
        pairs = zip(self._rankings, self._ranked.tolist(), strict=True)
        return np.array([0 if ok and r.has(0) else NONE for r, ok in pairs], dtype=np.int64)

    def _loss(self, c: int, rank: int) -> float:
        """Return how much less the assignment of a rank scores than the best; infinity if none.

        Variables in no factor follow the components.
        """
        free = c - len(self._rankings)
        if free >= 0:
            size = abs(float(self._graph.scores[self._free[free]]))
            return math.inf if rank > 1 else rank * size
        if not (self._ranked[c] and self._rankings[c].has(rank)):
            return math.inf
        if self._far[c]:
            loss = self._given_score(c, 0) - self._given_score(c, rank)
        else:
            loss = self._rankings[c].scores[0] - self._rankings[c].scores[rank]
        return min(loss, float(np.finfo(np.float64).max))

    def _given_score(self, c: int, rank: int) -> float:
        """Return the score of an assignment of a component in units of the given scores."""
        ranks = np.full(len(self._rankings), NONE)
        ranks[c] = rank
        chosen, score = self._chosen(ranks)
        _, score, _ = self._in_given_scale(chosen, score, score)
        return float(score[c])

    def _chosen(self, ranks: IntArray) -> tuple[BoolArray, FloatArray]:
        """Return the assignments of some ranks, and their scores."""
        part = self._graph.layout.part
        chosen = np.zeros(part.n_variables, dtype=bool)
        score = np.full(part.n_components, -np.inf)
        for c in np.flatnonzero(ranks != NONE).tolist():
            variables = slice(*part.first_variable[c : c + 2].tolist())
            chosen[variables] = self._rankings[c].answers[ranks[c]]
            score[c] = self._rankings[c].scores[ranks[c]]
        return chosen, score

    def _in_given_scale(
        self, chosen: BoolArray, score: FloatArray, bound: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the additionals of an assignment, its scores and its bounds."""
        part = self._graph.layout.part
        with Watch():
            _, v = best_additionals(part, self._eta_v, chosen)
        known = chosen, v, score, bound
        return v, *in_given_scale(part, self._given, self._far, *known, self._limits.gap)

    def assignment(self, entry: _Entry) -> Assignment:
        """Return the assignment of an entry; NaN in components without one."""
        graph = self._graph
        chosen, score = self._chosen(entry.ranks)
        bound = np.array([ranking.bound for ranking in self._rankings])
        for c in np.flatnonzero(entry.ranks != NONE).tolist():
            bound[c] = self._bound(c, float(score[c]), float(entry.loss[c]))
        bound[graph.non_finite] = np.nan
        v, score, bound = self._in_given_scale(chosen, score, bound)
        n_nodes = np.array([ranking.n_nodes for ranking in self._rankings], dtype=np.int64)
        by_solver = any(ranking.by_solver for ranking in self._rankings)
        gap = max(self._limits.gap, MIN_GAP if by_solver else 0.0)
        ranked = assignment_of(graph, chosen, v, score, bound, n_nodes, gap)
        ranked.values[entry.flipped] = 1.0 - ranked.values[entry.flipped]
        ranked.reason, ranked.interrupted = "continues past the best", self._limits.deadline.cut
        return ranked

    def _bound(self, c: int, score: float, loss: float) -> float:
        """Return a bound that exceeds a score if assignments not ranked may lose less."""
        ranking = self._rankings[c]
        if not self._far[c]:
            return max(score, score + loss + ranking.bound - ranking.scores[0])
        if ranking.bound == -math.inf:
            return score
        # losses are in units of the given scores, and bounds in those of the reduced ones
        known = range(len(ranking.scores))
        rank = bisect.bisect_left(known, loss, key=functools.partial(self._loss, c))
        if rank == len(known):
            return math.inf
        return score + max(0.0, ranking.bound - ranking.scores[rank])
