"""Decoding of solutions with the quadratic term: LP-MAP of all components together comes first."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

from lpsmap import (
    AtMostOne,
    Budget,
    DepTree,
    FactorGraph,
    Matching,
    ModifierBudget,
    Pair,
    Sequence,
    Variables,
    Xor,
    XorOut,
)
from lpsmap_core import Factor
from lpsmap_decode import Assignment

Declare = Callable[[Variables, np.random.Generator], list[Factor]]

BATCHES: dict[str, tuple[tuple[int, ...], Declare]] = {
    "rows": ((500, 10), lambda u, rng: [Xor(u)]),
    "budgets": ((200, 10), lambda u, rng: [Budget(u, 3)]),
    "trees": ((50, 8, 8), lambda u, rng: [DepTree(u)]),
    "matchings": ((50, 4, 6), lambda u, rng: [Matching(u, full="none")]),
    "pairs": ((300,), lambda u, rng: [Pair(u[:-1], u[1:], rng.normal(size=299))]),
    "sequences": ((50, 6, 3), lambda u, rng: [Sequence(u, rng.normal(size=(3, 3)))]),
    "masked": ((50, 6), lambda u, rng: [Xor(u[:, :4]), AtMostOne(u[:, 4:])]),
}
"""Batches whose best assignments need no search."""


def decoded_both_ways(graph: FactorGraph) -> tuple[Assignment, Assignment]:
    """Return an assignment decoded from marginals, and the best one."""
    decoded = graph.solve().decode()
    best = graph.solve_map(exact=True)
    assert isinstance(best, Assignment)
    return decoded, best


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_that_needs_no_search_gets_none(name: str, rng: np.random.Generator) -> None:
    shape, declare = BATCHES[name]
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=shape))
    for factor in declare(u, rng):
        graph.add(factor)
    decoded, best = decoded_both_ways(graph)
    assert decoded.found.all()
    assert decoded.proved.all()
    assert not decoded.n_nodes.any()
    assert np.isfinite(decoded.values).all()
    np.testing.assert_allclose(decoded.score, best.score, rtol=1e-12, atol=1e-12)


def test_no_value_is_nan_in_tied_rows_and_beside_bad_ones() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[0.0] * 5, [1.0] * 5, [np.nan] * 5, [-np.inf] * 4 + [2.0]])
    graph.add(Xor(u))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decoded = graph.solve().decode()
    values = decoded.value_of(u)
    assert values[[0, 1, 3]].sum(axis=1).tolist() == [1.0, 1.0, 1.0]
    assert np.isnan(values[2]).all()
    assert values[3, 4] == 1.0


def coupled_trees(scores: np.ndarray) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(DepTree(u))
    graph.add(ModifierBudget(u, 2))
    graph.add(XorOut(u[:, 0, :4]))
    return graph


def test_coupled_components_start_from_the_solution(rng: np.random.Generator) -> None:
    decoded, best = decoded_both_ways(coupled_trees(rng.normal(size=(16, 10, 10))))
    assert decoded.proved.all()
    np.testing.assert_allclose(decoded.score, best.score, rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-5, 1e-10, 1e-100])
def test_claims_for_small_scores(scale: float, rng: np.random.Generator) -> None:
    """A gap is in units of the scores, and the duals of a solution are useless far below 1."""
    scores = rng.normal(size=(16, 10, 10))
    best = scale * decoded_both_ways(coupled_trees(scores))[1].score
    for decoded in decoded_both_ways(coupled_trees(scale * scores)):
        assert decoded.proved.all()
        assert (decoded.bound >= (1.0 - 1e-9) * best).all()
        assert (decoded.score <= (1.0 + 1e-9) * best).all()
        np.testing.assert_allclose(decoded.score, best, rtol=1e-8)
