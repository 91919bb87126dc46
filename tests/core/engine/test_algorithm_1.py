"""Plain ADMM, iteration by iteration, beside a judge that knows nothing but the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import ALGORITHM_1
from random_graphs import KINDS, Declared, RandomGraph, random_graph

pytestmark = pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")

FloatArray = npt.NDArray[np.float64]

ITERATIONS = 8
PLAIN = {"adapt": False, "relaxation": 1.0, "tol": 0.0, "max_inner_iter": 1000}


def judged(graph: RandomGraph, step_size: float, relaxation: float) -> FloatArray:
    """Return the marginals after every iteration."""
    enumerated = [
        judges.EnumeratedFactor(one.variables, one.negated, one.m, one.n, one.eta_v)
        for one in graph.declared
    ]
    return judges.admm(graph.eta, enumerated, step_size, ITERATIONS, relaxation)


def matching(eta: FloatArray) -> RandomGraph:
    """Return rows that choose a column each, columns that are chosen at most once."""
    table = np.arange(eta.size).reshape(eta.shape)
    lines = [("Xor", judges.xor, row) for row in table]
    lines += [("AtMostOne", judges.at_most_one, column) for column in table.T]
    declared = [
        Declared(kind, line, np.zeros(len(line), bool), *listed(len(line)), np.empty(0), {})
        for kind, listed, line in lines
    ]
    return RandomGraph(eta.reshape(-1), declared)


def assert_same_iterations(graph: RandomGraph, step_size: float, **options: Any) -> None:
    """Compare all iterations, but of components of one factor, which need no agreement."""
    expected = judged(graph, step_size, options.get("relaxation", 1.0))
    for i in range(ITERATIONS):
        built, u, _ = graph.build()
        solution = built.solve(
            max_iter=i + 1, step_size=step_size, **{**PLAIN, "engine": "compiled", **options}
        )
        component = solution.layout.component
        factors = np.zeros(component.max() + 1)
        for one in graph.declared:
            factors[component[one.variables[0]]] += 1
        alike = (component < 0) | (factors[component] > 1)
        assert alike.any()
        np.testing.assert_allclose(u.value[alike], expected[i][alike], rtol=0, atol=1e-8)


@pytest.mark.parametrize("step_size", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("relaxation", [0.7, 1.0, 1.6])
def test_a_matching_has_the_judges_iterations(step_size: float, relaxation: float) -> None:
    eta = np.random.default_rng(0).normal(size=(3, 4))
    assert_same_iterations(matching(eta), step_size, relaxation=relaxation)


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_have_the_judges_iterations(seed: int) -> None:
    assert_same_iterations(
        random_graph(np.random.default_rng(seed), kinds=[*KINDS, "Sequence"]), 0.5
    )


def test_one_setting_is_the_papers() -> None:
    graph = matching(3.0 * np.random.default_rng(1).normal(size=(4, 5)))
    built, u, _ = graph.build()
    solution = built.solve(**ALGORITHM_1)
    assert solution.iterations.tolist() == [10]
    enumerated = [(one.variables, one.negated, one.m, one.n, one.eta_v) for one in graph.declared]
    expected = judges.admm(graph.eta, enumerated, 0.5, 10)[-1]
    np.testing.assert_allclose(u.value, expected, rtol=0, atol=1e-8)
    assert abs(expected - judges.solve_graph(graph.eta, enumerated)[0]).max() > 1e-3
