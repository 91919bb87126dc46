"""`Knapsack` with costs of any magnitude: solved alike, and read as they were given."""

from __future__ import annotations

import importlib.util
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest

from lpsmap import FactorGraph, Knapsack, Xor
from lpsmap_core import Solution, Status
from lpsmap_core.api import row_view
from lpsmap_decode import NamedGraph
from lpsmap_decode.formats.files import read_graph, write_graph

SCALES = [5e-324, 1e-320, 1e-300, 1e-154, 1e-9, 1e9, 1e16, 1e154, 1e200, 1e300, 1.7e307]
COSTS, BUDGET = np.array([[1.0, 2.0, 3.0, 0.0], [5.0, 1.0, 4.0, 2.0]]), np.array([3.0, 6.0])
SOLVERS = ["lpsmap"] + ["highs"] * (importlib.util.find_spec("highspy") is not None)


def scaled(scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Costs and budgets times a power of 2, which rounds nothing."""
    exponent = int(np.floor(np.log2(scale)))
    return np.ldexp(COSTS, exponent), np.ldexp(BUDGET, exponent)


def declared(costs, budget, scores) -> tuple[FactorGraph, Knapsack]:
    graph = FactorGraph()
    return graph, graph.add(Knapsack(graph.variable_from(scores), costs, budget))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", SCALES)
def test_solutions_and_gradients_do_not_depend_on_the_unit(scale, shared, rng) -> None:
    scores, d = 2.0 * rng.standard_normal((2, 4)) + 0.5, rng.standard_normal(8)
    found: list[Solution] = []
    for costs, budget in ((COSTS, BUDGET), scaled(scale)):
        graph, factor = declared(costs, budget, scores)
        if shared:
            graph.add(Xor(factor.variables[:, 0]))
        solution = graph.solve(tol=1e-10)
        assert solution.ok
        found.append(solution)
    np.testing.assert_allclose(found[1].values, found[0].values, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found[1].vjp(d)[0], found[0].vjp(d)[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("scale", SCALES)
def test_the_declaration_has_the_numbers_as_given(scale: float, tmp_path: Path) -> None:
    costs, budget = scaled(scale)
    graph, factor = declared(costs, budget, np.zeros((2, 4)))
    np.testing.assert_array_equal(factor.costs, costs)
    np.testing.assert_array_equal(factor.budget, budget)
    np.testing.assert_array_equal(row_view(factor, 1).costs, costs[1])
    assert row_view(factor, 1).budget == budget[1]
    write_graph(NamedGraph(graph, {}), tmp_path / "graph.json")
    write_graph(NamedGraph(graph, {}), tmp_path / "graph.fg")
    for file in ("graph.json", "graph.fg"):
        (again,) = read_graph(tmp_path / file).graph.factors[:1]
        np.testing.assert_array_equal(np.reshape(again.costs, -1)[: costs.size], costs.flat)
    for again in (pickle.loads(pickle.dumps(graph)), read_graph(tmp_path / "graph.json").graph):
        np.testing.assert_array_equal(again.factors[0].costs, costs)
        np.testing.assert_array_equal(again.factors[0].budget, budget)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", SCALES)
def test_the_best_assignment_fits_the_budget(scale: float, solver: str) -> None:
    for seed in range(4):
        scores = np.random.default_rng(seed).standard_normal((2, 4)) + 0.5
        costs, budget = scaled(scale)
        graph, factor = declared(costs, budget, scores)
        graph.add(Xor(factor.variables[:, 1]))
        found = graph.solve_map(exact=True, solver=solver)
        assert found.ok
        best = max(
            (scores * x).sum()
            for x in (np.reshape(x, (2, 4)) for x in itertools.product((0, 1), repeat=8))
            if ((COSTS * x).sum(axis=1) <= BUDGET).all() and x[:, 1].sum() == 1
        )
        assert found.total == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(
    ("costs", "budget", "expected"),
    [
        ([1e300, 1e-10, 1e-10], 1e-10, [0.0, 0.6, 0.4]),
        ([1e300, 1e-300, 0.0], 1e299, [0.1, 1.0, 0.9]),
        ([1e300, 1e-300, 5e-324], 0.0, [0.0, 0.0, 0.0]),
        ([1e300, 0.0, 1e-300], 0.0, [0.0, 1.0, 0.0]),
        ([5e-324, 5e-324, 1e-323], 5e-324, [0.5, 0.3, 0.1]),
        ([1e-300, 1e300, 1e300], 1e300, [1.0, 0.6, 0.4]),
        ([1e-300, 1e-300, 1e-300], 1e300, [1.0, 1.0, 0.9]),
        ([1e154, 1e154, 1e154], 1.7e308, [1.0, 1.0, 0.9]),
    ],
)
def test_costs_of_different_magnitudes(costs, budget, expected) -> None:
    scores = np.array([1.1, 1.1, 0.9])
    if costs[0] == 5e-324:
        scores = np.array([0.7, 0.5, 0.5])
    graph, factor = declared(costs, budget, scores)
    solution = graph.solve()
    assert solution.status[0] is Status.SOLVED
    np.testing.assert_allclose(solution.values, expected, rtol=0, atol=1e-12)
    linear = graph.solve_map()
    assert linear.ok
    judged = row_view(factor, 0)
    best = judged.vertex(judged.solve_map(scores, np.empty(0)))[0]
    assert linear.objective == pytest.approx(float(scores @ best), abs=1e-8)


def test_integer_costs_are_exact() -> None:
    """Costs that differ in the last of four digits."""
    unit = 10.0**3
    costs, scores = [unit + 1.0, unit, 2.0], [1.0, 0.9, 1e-3]
    for budget, best in ((2 * unit + 1.0, 1.9), (2 * unit, 1.001), (2 * unit + 3.0, 1.901)):
        graph, _ = declared(costs, budget, scores)
        found = graph.solve_map(exact=True)
        assert found.ok
        assert found.total == pytest.approx(best, abs=1e-12)
