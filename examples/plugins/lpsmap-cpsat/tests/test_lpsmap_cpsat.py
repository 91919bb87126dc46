"""CP-SAT compared with the search of lpsmap-decode."""

from __future__ import annotations

import types
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("ortools")

from lpsmap_core import (
    FactorGraph,  # noqa: E402
    installed,
    registered,
)
from lpsmap_cpsat import plugin  # noqa: E402
from lpsmap_factors_logic import AtMostOne, Budget, Dense, Knapsack, Or, OrOut, Pair  # noqa: E402


@pytest.fixture(autouse=True)
def offered() -> Iterator[types.ModuleType]:
    """Register the solver if the plugin is not installed."""
    if "cpsat" in installed().solvers:
        yield plugin
    else:
        with registered(plugin):
            yield plugin


def mixed(seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 4)))
    x = graph.variable_from(rng.normal(size=(2, 3)))
    graph.add(AtMostOne(u))
    graph.add(Or(~u[:, 0]))
    graph.add(Budget(u, 2, axis=0))
    graph.add(OrOut([u[0, 1], ~u[1, 1], x[0, 0]]))
    graph.add(Knapsack(u[:, 3], [0.5, 1.25, 2.0], 2.1))
    graph.add(Dense([x[0], x[1]], rng.normal(size=(3, 3))))
    graph.add(Pair(u[0], u[2], rng.normal(size=4)))
    return graph


@pytest.mark.parametrize("seed", range(5))
def test_assignments_are_those_of_the_search(seed: int) -> None:
    graph = mixed(seed)
    own = graph.solve_map(exact=True, solver="lpsmap")
    found = graph.solve_map(exact=True, solver="cpsat")
    assert own.ok
    assert found.ok
    assert found.solver == "cpsat"
    assert found.total == pytest.approx(own.total)


def test_contradictions_are_found() -> None:
    graph = FactorGraph()
    u = graph.variable(3)
    graph.add(Or(u))
    graph.add(Budget(u, 0))
    with pytest.warns(UserWarning, match="no zeros and ones satisfy"):
        found = graph.solve_map(exact=True, solver="cpsat")
    assert not found.found.any()
    assert found.proved.all()


def test_fractions_are_refused() -> None:
    graph = FactorGraph()
    graph.add(Knapsack(graph.variable(2), [1 / 3, 2 / 7], 0.5))
    with pytest.raises(ValueError, match="multiples of 1e-06"):
        graph.solve_map(exact=True, solver="cpsat")
