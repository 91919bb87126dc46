"""Arrays of large graphs that a solve holds once: slots, starts, marginals of additionals."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap import AtMostOne, Dense, FactorGraph, Variables
from lpsmap_core import Options
from lpsmap_core.engine.state import initial_state
from lpsmap_core.local.active.sets import ActiveSets


def grid(seed: int = 0) -> tuple[FactorGraph, Variables, list[Dense]]:
    """Return a grid of tables, in two declarations with one table."""
    rng, graph = np.random.default_rng(seed), FactorGraph()
    u = graph.variable_from(rng.standard_normal((4, 3, 3)))
    table = rng.standard_normal((3, 3))
    pairs = [Dense([u[:-1], u[1:]], table), Dense([u[:, :-1], u[:, 1:]], table)]
    for declared in pairs:
        graph.add(declared)
    return graph, u, pairs


def test_declarations_refer_to_the_slots_of_the_layout() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal((3, 4)))
    whole, flipped = graph.add(AtMostOne(u)), graph.add(AtMostOne(~u[:, 0]))
    masked = graph.add(AtMostOne(u, mask=np.tri(3, 4, k=1, dtype=bool)))
    before = [(f.variables.index.copy(), f.variables.negated.copy()) for f in graph.factors]
    graph.solve()
    part = graph._laid_out().part
    for factor, (index, negated) in zip(graph.factors, before, strict=True):
        shared = factor is not masked
        assert np.shares_memory(factor.variables.index, part.link_variable) == shared
        assert np.shares_memory(factor.variables.negated, part.negated) == shared
        np.testing.assert_array_equal(factor.variables.index, index)
        np.testing.assert_array_equal(factor.variables.negated, negated)
        assert not factor.variables.index.flags.writeable
    assert flipped.variables.negated.all()
    graph.add(AtMostOne(u[0]))  # which lays the graph out again
    graph.solve()
    np.testing.assert_array_equal(whole.variables.index, u.index)


def test_a_start_is_not_copied() -> None:
    graph, _, _ = grid()
    layout = graph._laid_out()
    eta, eta_v = graph.scored_graph().of_part()
    solution = graph.solve()
    warm = solution.start_for(layout)
    assert warm is not None
    state = initial_state(layout.part, eta, eta_v, Options(), warm)
    assert state.problem.iterate.u is warm.u
    assert state.problem.iterate.duals is warm.duals
    unknown = warm._replace(known=np.zeros(1, dtype=bool))
    iterate = initial_state(layout.part, eta, eta_v, Options(), unknown).problem.iterate
    assert not iterate.u.any()
    assert not iterate.duals.any()


@pytest.mark.parametrize("quadratic", [True, False])
def test_a_solution_starts_several_solves(quadratic: bool) -> None:
    graph, u, _ = grid()
    verb = graph.solve if quadratic else graph.solve_map
    first = verb()
    values = first.values.copy()
    graph.rescore(u, u.graph.flat_scores().reshape(u.shape) + 0.1)
    again = [verb(warm_start=first) for _ in range(2)]
    np.testing.assert_array_equal(first.values, values)
    np.testing.assert_array_equal(again[0].values, again[1].values)
    assert again[0].iterations == again[1].iterations


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("seed", range(5))
def test_active_sets_write_marginals_of_additionals_on_demand(seed: int, scale: float) -> None:
    graph, u, pairs = grid(seed)
    graph.rescore(u, scale * graph.flat_scores().reshape(u.shape))
    solution = graph.solve(tol=1e-10)
    state = solution.solved.state
    assert {type(solver) for solver in state.solvers} == {ActiveSets}
    assert not state.problem.extras.v.any()
    for declared, axis in zip(pairs, (0, 1), strict=True):
        tables = declared.additionals_value.reshape(-1, 3, 3)
        ends = [np.take(u.value, range(i, u.shape[axis] - 1 + i), axis=axis) for i in (0, 1)]
        for other, mu in zip((2, 1), ends, strict=True):
            np.testing.assert_allclose(tables.sum(axis=other), mu.reshape(-1, 3), atol=1e-8)


def test_components_that_no_iteration_reached_have_no_marginals_of_additionals() -> None:
    rng, graph = np.random.default_rng(0), FactorGraph()
    u = graph.variable_from(rng.standard_normal((2, 3, 3)))
    table = rng.standard_normal((3, 3))
    graph.add(Dense([u[:, :-1], u[:, 1:]], table))
    first = graph.solve()
    assert all(x.any() for x in first.additionals)
    graph.rescore(u, np.where(np.arange(2)[:, None, None] == 0, np.nan, u.value))
    with pytest.warns(Warning):
        solution = graph.solve(warm_start=first)
    nu = solution.additionals[0].reshape(2, -1)
    assert np.isnan(nu[0]).all()
    np.testing.assert_allclose(nu[1].sum(), 2.0, atol=1e-6)
