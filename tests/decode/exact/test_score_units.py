"""Exact searches with small scores: a gap is relative to the scores, whatever their size."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from lpsmap import FactorGraph, Xor
from lpsmap_core import ConvergenceWarning
from lpsmap_core.api import Part
from lpsmap_decode.results.score_units import in_units, score_units, unit_of
from random_graphs import KINDS, RandomGraph, all_scores, random_graph

SCALES = (1e-3, 1e-9, 1e-12, 1e-100, 1e-300)


def draw(seed: int, scale: float) -> RandomGraph:
    """Draw a graph of mixed factors that can be enumerated."""
    rng = np.random.default_rng(seed)
    while True:
        graph = random_graph(rng, int(rng.integers(2, 7)), scale, [*KINDS, "Sequence"])
        if len(graph.eta) <= 12:
            return graph


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_all_assignments(seed: int, scale: float) -> None:
    drawn = draw(seed, scale)
    _, scores = all_scores(drawn)
    best, size = float(scores.max()), float(np.abs(drawn.eta).sum())
    graph, _, _ = drawn.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        decoded = graph.solve().decode()
    for found in (graph.solve_map(exact=True), decoded):
        assert found.found.all()
        if found.ok:
            assert found.total == pytest.approx(best, rel=1e-7, abs=1e-7 * size)
    assert graph.solve_map(exact=True).ok
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = graph.solve_map(exact=True, max_nodes=1)
    assert found.bound.sum() + found.free_score >= best - 1e-9 * size


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("seed", range(10))
def test_the_best_few_in_their_order(seed: int, scale: float) -> None:
    drawn = draw(seed, scale)
    _, scores = all_scores(drawn)
    expected = np.sort(scores[scores > -np.inf])[::-1][:6]
    graph, _, _ = drawn.build()
    found = [one.total for one in graph.k_best(6)]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.abs(drawn.eta).sum())


def test_duals_around_one_give_no_bound_on_tiny_scores() -> None:
    """Their sums with scores of 1e-60 lose the scores, and were below the best assignment."""
    drawn = draw(47, 1e-60)
    _, scores = all_scores(drawn)
    graph, _, _ = drawn.build()
    found = graph.solve().decode()
    assert found.total == pytest.approx(float(scores.max()), rel=1e-7)


@pytest.mark.parametrize("scale", SCALES)
def test_another_solver(scale: float) -> None:
    pytest.importorskip("highspy")
    for seed in range(4):
        rng = np.random.default_rng(seed)
        drawn = random_graph(rng, 4, scale, ["Xor", "AtMostOne", "Budget"])
        while len(drawn.eta) > 12:
            drawn = random_graph(rng, 4, scale, ["Xor", "AtMostOne", "Budget"])
        _, scores = all_scores(drawn)
        graph, _, _ = drawn.build()
        found = graph.solve_map(exact=True, solver="highs")
        assert found.ok
        size = float(np.abs(drawn.eta).sum())
        assert found.total == pytest.approx(float(scores.max()), abs=1e-6 * size)


def test_a_bound_far_above_small_scores_proves_nothing() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from([1e-10, 3e-10])))
    found = graph.solve_map(exact=True)
    assert found.ok
    found.bound = found.bound + 1e-12
    assert not found.proved.any()


def test_units() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from([[0.75, -np.inf], [0.0, 0.0], [-5e-324, 0.0], [3.0, 0.1]])))
    part: Part = graph.scored_graph().layout.part
    scores = np.array([0.75, -np.inf, 0.0, 0.0, -5e-324, 0.0, 3.0, 0.1])
    assert score_units(part, scores, np.empty(0)).tolist() == [0.5, 1.0, 5e-324, 1.0]
    _, in_unit, _ = in_units(part, scores, np.empty(0))
    assert in_unit.tolist() == [1.5, -np.inf, 0.0, 0.0, -1.0, 0.0, 3.0, 0.1]
    assert in_units(part, in_unit, np.empty(0))[1] is in_unit  # no copy, as there may be many
    assert unit_of(np.array([-0.25, 0.1])) == 0.25
    assert unit_of(np.empty(0)) == 1.0
