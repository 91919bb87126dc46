"""Gibbs distributions of trees of factors, against sums over all assignments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpsmap import FactorGraph
from lpsmap_dynamic import GraphGibbs
from random_forests import enumerate_graph, random_forest


def drawn(seed: int, scale: float = 1.0, n_factors: int = 5, ties: bool = False) -> FactorGraph:
    """Return a random forest with random scores."""
    rng, graph = np.random.default_rng(seed), FactorGraph()
    scores = scale * rng.standard_normal(1 + 4 * n_factors)

    def draw(shape: Any) -> Any:
        found = scale * rng.standard_normal(shape)
        return np.rint(found) if ties else found

    random_forest(rng, graph, np.rint(scores) if ties else scores, draw, n_factors)
    return graph


def check(graph: FactorGraph, tolerance: float = 1e-11) -> GraphGibbs:
    """Hold the sums of a graph against enumeration."""
    gibbs, truth = graph.gibbs(), enumerate_graph(graph)
    assert gibbs.log_partition.sum() == pytest.approx(truth.log_partition, abs=tolerance)
    assert gibbs.entropy.sum() == pytest.approx(truth.entropy, abs=tolerance)
    m = np.concatenate([np.empty(0), gibbs._beliefs.m])
    np.testing.assert_allclose(m, truth.m, atol=tolerance)
    for factor, n in zip(graph.factors, truth.n, strict=True):
        np.testing.assert_allclose(gibbs.additionals_of(factor).reshape(n.shape), n, atol=tolerance)
    return gibbs


@pytest.mark.parametrize("seed", range(40))
def test_sums_are_those_over_all_assignments(seed: int) -> None:
    if np.isfinite(enumerate_graph(drawn(seed)).log_partition):
        check(drawn(seed, ties=seed % 2 == 0))
