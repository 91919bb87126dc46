"""Whole assignments, as the factors of a graph judge and complete them."""

from __future__ import annotations

import numpy as np

from lpsmap import AtMostOne, FactorGraph, Pair
from lpsmap_core.api import build_layout
from lpsmap_core.solution.complete_assignment import complete_assignment


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
