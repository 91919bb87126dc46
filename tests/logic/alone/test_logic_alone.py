"""The logic pack with no other pack of factors."""

from __future__ import annotations

import numpy as np
import pytest

import lpsmap_factors_logic
from lpsmap_core import FactorGraph, installed
from lpsmap_factors_logic import AtMostOne, Imply, Pair, Xor


def test_a_graph_of_several_types_is_solved() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]]))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    graph.add(Imply([u[0, 0], u[1, 1]]))
    pair = graph.add(Pair(u[0, 0], u[1, 1], 0.5))
    solution = graph.solve(tol=1e-9)
    assert solution.ok
    np.testing.assert_allclose(u.value, [[0.7, 0.3, 0.0], [0.3, 0.7, 0.0]], atol=1e-6)
    assert float(graph.additionals_of(pair)) == pytest.approx(0.7)


def test_sparsemax() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.7, 0.5, -1.0]))
    graph.add(Xor(u))
    solution = graph.solve()
    np.testing.assert_allclose(u.value, [0.6, 0.4, 0.0], atol=1e-9)
    np.testing.assert_allclose(solution.vjp(np.array([1.0, 0.0, 0.0]))[0], [0.5, -0.5, 0.0])


def test_every_type_is_offered() -> None:
    offered = installed().factors
    assert all(offered[name].value for name in lpsmap_factors_logic.__all__)
