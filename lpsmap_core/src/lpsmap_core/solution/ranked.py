"""The k best assignments of every component of a graph."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from lpsmap_core.decoding.assignments import best_additionals
from lpsmap_core.decoding.decode import SearchLimits
from lpsmap_core.decoding.exact import Assignments
from lpsmap_core.decoding.far_scores import as_given, bring_near
from lpsmap_core.decoding.k_best import Ranked, k_best
from lpsmap_core.kernels.arrays import FloatArray
from lpsmap_core.kernels.interrupts import Watch
from lpsmap_core.model.inputs import checked_count
from lpsmap_core.solution.assignment import Assignment
from lpsmap_core.solution.solution import Solution

__all__ = ["RankedAssignments", "most_ranked", "ranked_assignments"]

MOST = 1_000_000
"""As many assignments of every component can be asked for: all that are found are kept."""


def most_ranked(k: Any) -> int:
    """Return how many assignments are asked for, checked.

    Raises
    ------
    TypeError
        If that is no integer.
    ValueError
        If it is less than 1, or more than can be kept.
    """
    found = checked_count("k_best: k", k)
    if found > MOST:
        raise ValueError(f"k_best: k: got {found}; expected at most {MOST}, since all are kept.")
    return found


class RankedAssignments(Sequence[Assignment]):
    """The k best assignments of a graph, the best first: each is made when it is asked for.

    Where all components have fewer, the last entries are one and the same.
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


def ranked_assignments(relaxed: Solution, k: int, limits: SearchLimits) -> RankedAssignments:
    """Return the k best assignments of every component, the j-th best of all in the j-th entry.

    Parameters
    ----------
    relaxed
        The relaxation LP-MAP.
    k
        How many.
    limits
        When to stop.
    """
    part, bad = relaxed.layout.part, relaxed.non_finite
    eta = relaxed.scores[part.variables]
    eta_v = part.by_bucket(relaxed.additional_scores, relaxed.factors)
    eta = np.where(bad[part.component], 0.0, eta)
    eta_v = np.where(bad[part.additional_component], 0.0, eta_v)
    given = eta, eta_v
    eta, eta_v, far = bring_near(part, eta, eta_v)
    start = relaxed.solved.end()
    ranked: list[Ranked] = []
    with Watch(within=limits.deadline):
        for c in range(part.n_components):
            if limits.deadline.passed:
                ranked.append(Ranked([], [], math.inf, 0, False))
                continue
            variables = slice(*part.first_variable[c : c + 2].tolist())
            space = Assignments(part, c, eta[variables], eta_v, limits.threads)
            ranked.append(k_best(space, space.root(start), 0 if bad[c] else k, limits))
            if ranked[-1].interrupted:
                limits.deadline.end()

    def make(j: int) -> Assignment:
        one = _assignment(relaxed, ranked, j, eta_v, limits)
        chosen = np.nan_to_num(one.values[part.variables]) > 0.0
        v = part.by_bucket(one.additionals, relaxed.factors)
        known = chosen, v, one.score, one.bound
        one.score, one.bound = as_given(part, given, far, *known, limits.gap)
        return one

    return RankedAssignments(k, max((len(one.answers) for one in ranked), default=0), make)


def _assignment(
    relaxed: Solution, ranked: Sequence[Ranked], j: int, eta_v: FloatArray, limits: SearchLimits
) -> Assignment:
    """Return the j-th best of every component; none where there are fewer."""
    part, n = relaxed.layout.part, len(ranked)
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
    values = np.where(relaxed.scores > 0.0, 1.0, 0.0)  # of variables in no factor
    values[part.variables] = np.where((score > -np.inf)[part.component], chosen, np.nan)
    return Assignment(
        layout=relaxed.layout,
        factors=relaxed.factors,
        scores=relaxed.scores,
        additional_scores=relaxed.additional_scores,
        values=values,
        additionals=part.by_declaration(v, relaxed.factors),
        score=score,
        bound=np.where(relaxed.non_finite, np.nan, bound),
        n_nodes=np.array([found.n_nodes for found in ranked], dtype=np.int64),
        gap=limits.gap,
        reason="goes on past the best",
        interrupted=limits.deadline.cut,
    )
