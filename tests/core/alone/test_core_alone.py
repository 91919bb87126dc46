"""Core with what it depends on, and nothing else: a third party's factor of two methods."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from lpsmap_core import Factor, FactorGraph


class ExactlyOne(Factor):
    """One variable is on."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> int:
        return int(np.argmax(eta_u))

    def vertex(self, y: int) -> tuple[Any, Any]:
        return np.eye(self.event_shape[0])[y], np.zeros(0)


def overlapping() -> tuple[FactorGraph, Any]:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.6, 0.4, -3.0]))
    graph.add(ExactlyOne(u))
    graph.add(ExactlyOne(~u[1:]))
    return graph, u


def test_factors_that_overlap_are_solved() -> None:
    graph, u = overlapping()
    solution = graph.solve(tol=1e-9)
    assert solution.ok
    np.testing.assert_allclose(u.value, [0.0, 1.0, 0.0], atol=1e-6)
    best = graph.solve_map()
    assert best.ok
    np.testing.assert_allclose(u.value, [0.0, 1.0, 0.0], atol=1e-6)


without_decode = pytest.mark.skipif(
    importlib.util.find_spec("lpsmap_decode") is not None, reason="lpsmap-decode is installed"
)


@without_decode
def test_best_assignments_say_what_to_install() -> None:
    graph, _ = overlapping()
    for ask in (lambda: graph.solve_map(exact=True), lambda: graph.k_best(2)):
        with pytest.raises(ImportError, match=r"install it with: pip install .*lpsmap.decode$"):
            ask()


@without_decode
def test_files_say_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"install it with: pip install .*lpsmap.decode$"):
        exec("from lpsmap_core.api import read_graph")


def test_a_factor_alone_has_structures_and_a_gradient() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.6, 0.4, -3.0], [2.0, 0.0, 0.0]]))
    factor = graph.add(ExactlyOne(u))
    solution = graph.solve()
    np.testing.assert_allclose(u.value, [[0.6, 0.4, 0.0], [1.0, 0.0, 0.0]], atol=1e-9)
    first, second = solution.structures(factor)
    assert sorted(first.probabilities.tolist()) == pytest.approx([0.4, 0.6])
    assert second.probabilities.tolist() == [1.0]
    gradient = solution.vjp(np.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]))[0]
    np.testing.assert_allclose(gradient, [0.5, -0.5, 0.0, 0.0, 0.0, 0.0], atol=1e-9)
