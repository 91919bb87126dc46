"""The k best assignments of every item of a graph."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core import Distributions
from lpsmap_core.api import BoolArray, FloatArray, IntArray, slot_values
from lpsmap_dynamic import Items


class Ranking(NamedTuple):
    """The best assignments of every item, the best first."""

    values: FloatArray
    """(k, n_variables) zeros and ones; zeros where an item has fewer assignments."""
    there: BoolArray
    """(k, n_items) flags of the assignments."""


def ranking_of(graph: Any, items: Items, k: int) -> Ranking:
    """Return the k best assignments of every item of a `TorchFactorGraph`.

    Factors that are alone in their components are ranked by their inference, others by a search.
    """
    layout = graph._laid_out()
    values, scores = np.zeros((k, graph.n_variables)), np.full((k, layout.n_components), -np.inf)
    if layout.n_components == sum(factor.n_factors for factor in graph.factors):
        for factor in graph.factors:
            ranked = graph.gibbs(factor).k_best(k)
            owner, rank = ranked.vertices.owner, write_structures(ranked, values)
            scores[rank, Items.first_of_factors(factor, layout.component)[owner]] = (
                ranked.flat_scores
            )
    else:
        for i, assignment in enumerate(graph.k_best(k, by_component=True)):
            values[i], scores[i] = assignment.values, assignment.score
    ranks = ranks_of(scores, items)
    of_variable = np.append(ranks, np.full((k, 1), -1), axis=1)[:, layout.component]
    values = np.take_along_axis(values, np.maximum(of_variable, 0), axis=0)
    there = np.zeros((k, items.n_items), dtype=bool)
    there[0] = True  # of items without factors, too
    inside = items.of_component >= 0
    there[:, items.of_component[inside]] = True
    rank, component = np.nonzero((ranks < 0) & inside)
    there[rank, items.of_component[component]] = False
    return Ranking(np.where(of_variable < 0, 0.0, values), there)


def write_structures(structures: Distributions, values: FloatArray) -> IntArray:
    """Write structures of a declaration as (k, n_variables) values; return their ranks.

    The j-th structures of all factors, no two of which share a variable, are row j.
    """
    factor, owner = structures.factor, structures.vertices.owner
    index = slot_values(factor, factor.variables.index)
    negated = slot_values(factor, factor.variables.negated)
    counts = np.repeat(structures.counts.reshape(-1), np.diff(factor.offsets))
    values[:, index] = (np.arange(len(values))[:, None] < counts) & negated
    rank = np.arange(len(owner)) - structures.starts[owner]
    structure, entry, value = structures.vertices.of_variables(np.diff(factor.offsets))
    slot = factor.offsets[owner[structure]] + entry
    values[rank[structure], index[slot]] = np.where(negated[slot], 1.0 - value, value)
    return rank


def ranks_of(scores: FloatArray, items: Items) -> IntArray:
    """Return (k, n_components) the rank in its component of each item's assignments, or -1."""
    k, n_components = scores.shape
    rank = np.where(scores > -np.inf, np.arange(k)[:, None], -1)
    for item in np.flatnonzero(np.bincount(items.of_component[items.of_component >= 0]) > 1):
        components = np.flatnonzero(items.of_component == item)
        best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for c in components:
            ranked = [(s, i) for i, s in enumerate(scores[:, c].tolist()) if s > -np.inf]
            sums = ((a + b, (*ranks, i)) for (a, ranks), (b, i) in itertools.product(best, ranked))
            best = sorted(sums, key=lambda pair: -pair[0])[:k]
        rank[:, components] = -1
        for i, (_, ranks) in enumerate(best):
            rank[i, components] = ranks
    return rank
