"""The k best assignments of every component of a graph."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import overload

import numpy as np

from lpsmap_core import Assignment
from lpsmap_core.api import (
    FloatArray,
    Relaxation,
    ScoredGraph,
    SearchLimits,
    Watch,
    best_additionals,
    reduce_dominant_scores,
)
from lpsmap_decode.exact.far_scores import in_given_scale
from lpsmap_decode.exact.k_best import KBestResult, k_best
from lpsmap_decode.exact.relaxation_search import RelaxationSpace

__all__ = ["RankedAssignments", "ranked_assignments"]


class RankedAssignments(Sequence[Assignment]):
    """The k best assignments of a graph, the best first; each is built on first access.

    If every component has fewer, the last entries are the same object.
    """

    def __init__(self, k: int, n_different: int, make: Callable[[int], Assignment]) -> None:
        self._k, self._n_different = k, n_different
        self._make = functools.cache(make)

    def __len__(self) -> int:
        return self._k

    @overload
    def __getitem__(self, j: int) -> Assignment: ...
    @overload
    def __getitem__(self, j: slice) -> list[Assignment]: ...
    def __getitem__(self, j: int | slice) -> Assignment | list[Assignment]:
        if isinstance(j, slice):
            return [self[i] for i in range(*j.indices(self._k))]
        return self._make(min(range(self._k)[j], self._n_different))

    def __repr__(self) -> str:
        return f"RankedAssignments({self._k} of them, {self._n_different} different)"


def ranked_assignments(relaxation: Relaxation, k: int, limits: SearchLimits) -> RankedAssignments:
    """Return the k best assignments of every component: entry j combines the j-th best of each.

    Parameters
    ----------
    relaxation
        The solution of LP-MAP.
    k
        The number of assignments.
    limits
        When to stop.
    """
    graph = relaxation.graph
    part, bad = graph.layout.part, graph.non_finite
    given = graph.of_part()
    eta, eta_v, far = reduce_dominant_scores(part, *given)
    start = relaxation.solved.end()
    ranked: list[KBestResult] = []
    with Watch(within=limits.deadline):
        for c in range(part.n_components):
            if limits.deadline.passed:
                ranked.append(KBestResult([], [], math.inf, 0, False))
                continue
            variables = slice(*part.first_variable[c : c + 2].tolist())
            space = RelaxationSpace(part, c, eta[variables], eta_v, limits.threads)
            ranked.append(k_best(space, space.root(start), 0 if bad[c] else k, limits))
            if ranked[-1].interrupted:
                limits.deadline.end()

    def make(j: int) -> Assignment:
        one = _assignment(graph, ranked, j, eta_v, limits)
        chosen = np.nan_to_num(one.values[part.variables]) > 0.0
        v = part.by_bucket(one.additionals, graph.factors)
        known = chosen, v, one.score, one.bound
        one.score, one.bound = in_given_scale(part, given, far, *known, limits.gap)
        return one

    return RankedAssignments(k, max((len(one.answers) for one in ranked), default=0), make)


def _assignment(
    graph: ScoredGraph,
    ranked: Sequence[KBestResult],
    j: int,
    eta_v: FloatArray,
    limits: SearchLimits,
) -> Assignment:
    """Return the j-th best assignment of every component; NaN where there are fewer."""
    part, n = graph.layout.part, len(ranked)
    chosen = np.zeros(part.n_variables, dtype=bool)
    score, bound = np.full(n, -np.inf), np.full(n, -np.inf)
    for c, found in enumerate(ranked):
        bound[c] = found.bound
        if j < len(found.answers):
            chosen[slice(*part.first_variable[c : c + 2].tolist())] = found.answers[j]
            score[c] = found.scores[j]
            bound[c] = max(score[c], found.bound)
    with Watch():
        _, v = best_additionals(part, eta_v, chosen)
    values = np.where(graph.scores > 0.0, 1.0, 0.0)  # of variables in no factor
    values[part.variables] = np.where((score > -np.inf)[part.component], chosen, np.nan)
    return Assignment(
        layout=graph.layout,
        factors=graph.factors,
        scores=graph.scores,
        additional_scores=graph.additional_scores,
        values=values,
        additionals=part.by_declaration(v, graph.factors),
        score=score,
        bound=np.where(graph.non_finite, np.nan, bound),
        n_nodes=np.array([found.n_nodes for found in ranked], dtype=np.int64),
        gap=limits.gap,
        reason="continues past the best",
        interrupted=limits.deadline.cut,
    )
