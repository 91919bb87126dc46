"""The Jacobian as a matrix, and the dual variables of a solution."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, Or, Pair, Sequence, Xor


def graph_of(scores: Any) -> tuple[FactorGraph, Any, Any]:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    rows = graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    return graph, u, rows


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_the_jacobian_is_that_of_products(temperature: float) -> None:
    """For a batch, a view with negations in any order, and free variables."""
    scores = np.random.default_rng(0).normal(size=(3, 3, 4))
    graph, u, _ = graph_of(scores)
    free = graph.variable_from([0.5 * temperature, 2.0])
    solution = graph.solve(tol=1e-12, temperature=temperature)
    whole = [solution.vjp(unit)[0] for unit in np.eye(graph.n_variables)]
    found = solution.jacobian(u)
    np.testing.assert_allclose(found, np.array(whole)[:36, :36], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(solution.jacobian(free), np.diag([1.0 / temperature, 0.0]))
    view = ~u[1, 2, ::-1]
    np.testing.assert_allclose(
        solution.jacobian(view), found[20:24, 20:24][::-1, ::-1], rtol=0, atol=1e-12
    )
    mixed = solution.jacobian(u[[2, 0], [1, 1]])
    chosen = np.arange(36).reshape(3, 3, 4)[[2, 0], [1, 1]].reshape(-1)
    np.testing.assert_allclose(mixed, found[np.ix_(chosen, chosen)], rtol=0, atol=1e-12)
    assert solution.jacobian(u[:0]).shape == (0, 0)


def test_the_jacobian_is_the_central_difference() -> None:
    scores = np.random.default_rng(1).normal(size=(4, 4))

    def solved(scores: Any) -> Any:
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(DepTree(u))
        graph.add(Budget(u, 2, axis=-2))
        return graph.solve(tol=1e-12), u

    solution, u = solved(scores)
    found = solution.jacobian(u)
    for i in range(16):
        step = 1e-5 * np.eye(16)[i].reshape(4, 4)
        above, below = (solved(scores + sign * step)[0].values for sign in (1, -1))
        np.testing.assert_allclose(found[i], (above - below) / 2e-5, rtol=0, atol=1e-6)


def test_all_products_of_a_jacobian_have_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a clock that each product moves on by 25 seconds."""
    graph, u, _ = graph_of(np.random.default_rng(4).normal(size=(2, 3, 3)))
    solution = graph.solve(max_time=60.0)
    expected = solution.jacobian(u)
    turns, product, moved = [], solution.vjp, [0.0]
    clock = time.monotonic

    def slow(d: Any) -> Any:
        turns.append(d)
        moved[0] += 25.0
        return product(d)

    monkeypatch.setattr(solution, "vjp", slow)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + moved[0])
    with pytest.warns(RuntimeWarning, match="jacobian: some columns are NaN, .* of 60 seconds"):
        cut = solution.jacobian(u)
    assert len(turns) == 3
    for block in (slice(9), slice(9, 18)):
        np.testing.assert_array_equal(cut[block, block][:, :3], expected[block, block][:, :3])
        assert np.isnan(cut[block, block][:, 3:]).all()
    assert (cut[:9, 9:] == 0.0).all()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_factors_solve_their_own_problems_with_the_dual_variables(temperature: float) -> None:
    """Every variable is in two factors, so that their problems have half the weights."""
    rng = np.random.default_rng(2)
    scores, steps = rng.normal(size=(2, 4, 3)), rng.normal(size=(3, 3))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    chain = graph.add(Sequence(u, transitions=steps))
    columns = graph.add(Or(~u, axis=-2))
    solution = graph.solve(tol=1e-12, temperature=temperature)
    duals = [solution.dual_variables(factor) for factor in (chain, columns)]
    np.testing.assert_allclose(duals[0] + duals[1].swapaxes(-1, -2), 0.0, atol=1e-12)
    assert np.abs(duals[0]).max() > 1e-3
    alone = FactorGraph()
    v = alone.variable_from(scores + 2.0 * duals[0])
    alone.add(Sequence(v, transitions=2.0 * steps))
    alone.solve(tol=1e-12, temperature=temperature)
    np.testing.assert_allclose(v.value, u.value, rtol=0, atol=1e-9)
    alone = FactorGraph()
    v = alone.variable_from(scores - 2.0 * duals[0])
    alone.add(Or(~v, axis=-2))
    alone.solve(tol=1e-12, temperature=temperature)
    np.testing.assert_allclose(v.value, u.value, rtol=0, atol=1e-9)


def test_dual_variables_of_lengths_and_of_factors_without_others() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(3).normal(size=(2, 3, 3)))
    rows = graph.add(Xor(u, lengths=[[3, 2, 1], [3, 3, 1]]))
    graph.add(AtMostOne(u[0], axis=-2))
    solution = graph.solve()
    duals = solution.dual_variables(rows)
    assert duals.shape == u.shape
    assert (duals[0, 1, 2], duals[0, 2, 1], duals[1, 2, 1]) == (0.0, 0.0, 0.0)
    assert (duals[1] == 0.0).all() and (duals[0] != 0.0).any()
    other = Pair(u[0, 0], u[0, 1], np.zeros(3))
    with pytest.raises(ValueError, match="dual_variables: .* is not a factor of the solved graph"):
        solution.dual_variables(other)


def test_tolerances_of_both_residuals() -> None:
    scores = np.random.default_rng(4).normal(size=(1, 8, 9))
    options: dict[str, Any] = {"adapt": False, "max_iter": 10_000}
    loose = graph_of(scores)[0].solve(tol=1e-3, **options)
    tight = graph_of(scores)[0].solve(tol=1e-3, dual_tol=1e-9, **options)
    assert tight.ok and tight.dual_residual[0] <= 1e-9 < loose.dual_residual[0]
    assert tight.iterations[0] > loose.iterations[0]
    lenient = graph_of(scores)[0].solve(tol=1e-9, dual_tol=1.0, **options)
    assert lenient.ok and lenient.primal_residual[0] <= 1e-9
    with pytest.raises(ValueError, match="dual_tol: got -1"):
        graph_of(scores)[0].solve(dual_tol=-1.0)


def test_limits_of_the_backward_pass() -> None:
    scores = np.random.default_rng(5).normal(size=(1, 12, 13))
    d = np.random.default_rng(6).normal(size=scores.size)
    exact = graph_of(scores)[0].solve(tol=1e-9).vjp(d)[0]
    rough = graph_of(scores)[0].solve(tol=1e-9, backward_tol=1e-2).vjp(d)[0]
    assert 1e-9 < np.abs(rough - exact).max() < 0.2
    short = graph_of(scores)[0].solve(tol=1e-9, backward_max_iter=1)
    with pytest.warns(RuntimeWarning, match="stopped after 1 products"):
        short.vjp(d)
    with pytest.raises(ValueError, match="backward_max_iter: got 0"):
        graph_of(scores)[0].solve(backward_max_iter=0)
