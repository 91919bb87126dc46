"""The engine compared with core's."""

from __future__ import annotations

import types
from collections.abc import Iterator

import numpy as np
import pytest

from lpsmap_core import FactorGraph, Status, installed, registered
from lpsmap_factors_logic import AtMostOne, Budget, Knapsack, Nand, OrOut, Pair, Xor
from lpsmap_rows import plugin


@pytest.fixture(autouse=True)
def offered() -> Iterator[types.ModuleType]:
    """Register the engine if the plugin is not installed."""
    if "rows" in installed().engines:
        yield plugin
    else:
        with registered(plugin):
            yield plugin


def mixed(seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 4)))
    x = graph.variable_from(rng.normal(size=(2, 3)))
    graph.add(Xor(u, lengths=[4, 2, 3]))
    graph.add(AtMostOne(~u[:, 1]))
    graph.add(Nand(u[:, :2], axis=0))
    graph.add(Budget(x, 1, axis=0))
    graph.add(OrOut([x[0, 1], ~x[1, 1], x[0, 0]]))
    graph.add(Knapsack(x[1], [0.5, 1.25, 2.0], 2.1))
    return graph


@pytest.mark.parametrize("seed", range(8))
def test_solutions_and_gradients_are_those_of_cores_engine(seed: int) -> None:
    ours, theirs = mixed(seed), mixed(seed)
    own = ours.solve(tol=1e-9, max_iter=20_000)
    found = theirs.solve(tol=1e-9, max_iter=20_000, engine="rows")
    assert found.ok
    np.testing.assert_allclose(found.values, own.values, rtol=0, atol=1e-6)
    d = np.random.default_rng(seed).normal(size=len(own.values))
    np.testing.assert_allclose(found.vjp(d)[0], own.vjp(d)[0], rtol=0, atol=1e-5)


def test_forbidden_variables_are_off() -> None:
    graph = FactorGraph()
    u = graph.variable_from([0.3, -np.inf, 0.1])
    graph.add(Xor(u))
    graph.solve(tol=1e-9, engine="rows")
    np.testing.assert_allclose(u.value, [0.6, 0.0, 0.4], atol=1e-7)


def test_an_iteration_limit_warns() -> None:
    with pytest.warns(UserWarning):
        solution = mixed(0).solve(max_iter=2, engine="rows")
    assert Status.ITERATION_LIMIT in solution.status


def test_unsupported_solves_are_refused() -> None:
    graph = FactorGraph()
    u = graph.variable(2)
    xor = graph.add(Xor(u))
    solution = graph.solve(engine="rows")
    with pytest.raises(TypeError, match="has no structures"):
        solution.structures(xor)
    graph.add(Pair(u[0], u[1], 0.5))
    with pytest.raises(ValueError, match="which Pair lacks"):
        graph.solve(engine="rows")
    with pytest.raises(ValueError, match="needs the quadratic term"):
        graph.solve_map(engine="rows")
