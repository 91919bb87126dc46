"""Declared dynamic programs on core alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpsmap_core import FactorGraph
from lpsmap_dynamic import DynamicProgram


class Steps(DynamicProgram):
    """Steps of one or two over a row of slots; a step switches on the slot where it begins."""

    @classmethod
    def hypergraph(cls, row: Any, build: Any) -> int:
        (length,) = row.event_shape
        build.edge(0)
        for t in range(length):
            build.edge(t + 1, [t], [t])
            if t + 2 <= length:
                build.edge(t + 2, [t], [t])
        return int(length)


def test_sums_over_structures() -> None:
    graph = FactorGraph()
    gibbs = graph.gibbs(graph.add(Steps(graph.variable_from(np.zeros(4)))))
    assert gibbs.count() == 5
    assert float(gibbs.log_partition) == pytest.approx(np.log(5.0))
    np.testing.assert_allclose(gibbs.marginals, [1.0, 0.6, 0.8, 0.6])


def test_the_oracle_and_the_solve_follow() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.0, -1.0, 0.2, -0.1]))
    factor = graph.add(Steps(u))
    best = graph.solve_map()
    assert best.ok
    np.testing.assert_array_equal(u.value, [1.0, 0.0, 1.0, 0.0])
    solution = graph.solve(tol=1e-9)
    (found,) = solution.structures(factor)
    np.testing.assert_allclose(found.probabilities @ found.variables, u.value, atol=1e-8)
