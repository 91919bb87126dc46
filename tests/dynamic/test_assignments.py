"""Whole assignments, as the factors of a graph judge and complete them."""

from __future__ import annotations

import numpy as np

from lpsmap import AtMostOne, FactorGraph, Pair
from lpsmap_core.api import build_layout
from lpsmap_dynamic import complete_assignment


def test_assignments_are_completed_by_declaration() -> None:
    """Whatever the order of the buckets; a factor without variables allows everything."""
    graph = FactorGraph()
    u = graph.variable((3, 2))
    graph.add(Pair(u[0, 0], u[1, 0], 0.5))
    graph.add(AtMostOne(u, lengths=[2, 2, 0]))
    graph.add(Pair(u[0, 0], u[:2, 1], [1.0, -np.inf]))
    completed = complete_assignment(
        build_layout(graph.n_variables, graph.factors),
        graph.factors,
        [graph.additional_scores(factor) for factor in graph.factors],
        np.array([True, False, True, True, False, True]),
    )
    allowed = [found.tolist() for found in completed.allowed]
    assert allowed == [[True], [True, False, True], [True, False]]
    assert [found.shape for found in completed.additionals] == [(1, 1), (3, 0), (2, 1)]
    assert completed.additionals[0] == 1.0
    assert completed.additionals[2][0] == 0.0


def test_several_assignments_are_completed_like_each_of_them() -> None:
    """By one call of each oracle, compiled or not; also no assignment at all."""
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable((3, 2))
    graph.add(Pair(u[0], ~u[1], rng.normal(size=2)))
    graph.add(AtMostOne(u, lengths=[2, 1, 0]))
    layout, scores = (
        build_layout(6, graph.factors),
        [graph.additional_scores(factor) for factor in graph.factors],
    )
    chosen = rng.random((2, 4, 6)) < 0.5
    several = complete_assignment(layout, graph.factors, scores, chosen)
    assert [x.shape for x in several.additionals] == [(2, 4, 2, 1), (2, 4, 3, 0)]
    assert not several.allowed[1].all()
    for at in np.ndindex(2, 4):
        one = complete_assignment(layout, graph.factors, scores, chosen[at])
        for ours, expected in zip(
            [*several.allowed, *several.additionals], [*one.allowed, *one.additionals], strict=True
        ):
            np.testing.assert_array_equal(ours[at], expected)
    none = complete_assignment(layout, graph.factors, scores, chosen[0, :0])
    assert [x.shape for x in none.additionals] == [(0, 2, 1), (0, 3, 0)]
