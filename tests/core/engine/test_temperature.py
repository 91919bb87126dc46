"""Solves at a temperature: the solution for scores divided by it, in the units of the scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import judges
from lpsmap import AtMostOne, Budget, FactorGraph, Pair, Sequence, Xor
from lpsmap_core import Solution, Status

TEMPERATURES = [1e-8, 1e-3, 0.3, 1.0, 7.0, 1e8]
at_temperatures = pytest.mark.parametrize("temperature", TEMPERATURES)


def graph_of(eta: Any, pairs: Any, scale: float = 1.0) -> FactorGraph:
    """Rows and columns that interact, pairs with additionals, and three variables in no factor."""
    graph = FactorGraph()
    u = graph.variable_from(np.asarray(eta[:12]).reshape(3, 4) * scale)
    graph.variable_from(np.asarray(eta[12:]) * scale)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    graph.add(Pair(u[:2, 0], u[:2, 1], np.asarray(pairs) * scale))
    return graph


def drawn(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(size=12), [-0.2, 0.4, 2.5]]), rng.normal(size=2)


@at_temperatures
def test_solution_is_that_of_divided_scores(temperature: float) -> None:
    eta, pairs = drawn()
    found = graph_of(eta, pairs).solve(temperature=temperature, tol=1e-10)
    divided = graph_of(eta, pairs, 1.0 / temperature).solve(tol=1e-10)
    np.testing.assert_allclose(found.values, divided.values, rtol=0, atol=1e-9)
    for mine, theirs in zip(found.additionals, divided.additionals, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
    assert found.status.tolist() == divided.status.tolist()
    np.testing.assert_allclose(found.objective, temperature * divided.objective, rtol=1e-9)
    assert (np.abs(found.gap) <= 1e-8 * max(1.0, temperature)).all()
    assert (found.error_bound < 1e-5).all()
    alone = np.clip(eta[12:] / temperature, 0.0, 1.0)
    np.testing.assert_allclose(found.values[12:], alone, rtol=1e-15)


@at_temperatures
@pytest.mark.parametrize("seed", range(5))
def test_solved_is_the_judges(temperature: float, seed: int) -> None:
    """An interior point method for the quadratic program, and enumeration at the limit."""
    rng = np.random.default_rng(seed)
    eta = rng.normal(size=6)
    graph = FactorGraph()
    u = graph.variable_from(eta.reshape(2, 3))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    found = graph.solve(temperature=temperature, max_iter=20_000)
    assert found.ok
    index = np.arange(6).reshape(2, 3)
    off = np.zeros(3, bool)
    factors = [judges.EnumeratedFactor(row, off, *judges.xor(3), np.empty(0)) for row in index]
    factors += [
        judges.EnumeratedFactor(column, off[:2], *judges.at_most_one(2), np.empty(0))
        for column in index.T
    ]
    if temperature >= 0.3:
        mu, _, _ = judges.solve_graph(eta / temperature, factors)
        np.testing.assert_allclose(found.values, mu, atol=2e-6)
    best = max(eta[i] + eta[3 + j] for i in range(3) for j in range(3) if i != j)
    if temperature <= 1e-3:  # the solution is the best vertex, up to ties of this size
        assert best - 2.0 * temperature <= eta @ found.values <= best + 1e-9
        np.testing.assert_allclose(found.objective.sum(), best - temperature, atol=1e-9)


@pytest.mark.parametrize("temperature", [0.2, 3.0])
def test_derivatives_are_those_in_the_given_scores(temperature: float) -> None:
    rng = np.random.default_rng(3)
    eta, pairs = drawn(1)
    d, d_pairs, step = rng.normal(size=15), rng.normal(size=2), 1e-5

    def solved(by: float) -> Solution:
        graph = graph_of(eta + by * d, pairs + by * d_pairs)
        return graph.solve(temperature=temperature, tol=1e-12)

    here, ahead, behind = solved(0.0), solved(step), solved(-step)
    along = [np.zeros((f.n_factors, f.n_additionals)) for f in here.factors]
    along[2] = d_pairs.reshape(2, 1)
    product, product_v = here.jvp(d, along)
    central = (ahead.values - behind.values) / (2.0 * step)
    np.testing.assert_allclose(product, central, atol=1e-6)
    central = (ahead.additionals[2] - behind.additionals[2]) / (2.0 * step)
    np.testing.assert_allclose(product_v[2], central, atol=1e-6)
    assert product[13] == (d[13] / temperature if temperature > eta[13] else 0.0)


def test_envelope() -> None:
    """The objective changes by the marginals with the scores, and by half their squares with T."""
    eta, pairs = drawn(2)
    step, t = 1e-5, 0.4
    here = graph_of(eta, pairs).solve(temperature=t, tol=1e-12)
    ahead, behind = (
        graph_of(eta, pairs).solve(temperature=t + by, tol=1e-12) for by in (step, -step)
    )
    slope = (ahead.objective - behind.objective).sum() / (2.0 * step)
    np.testing.assert_allclose(slope, -0.5 * (here.values[:12] ** 2).sum(), atol=1e-6)


def test_one_is_the_default() -> None:
    eta, pairs = drawn()
    default, one = graph_of(eta, pairs).solve(), graph_of(eta, pairs).solve(temperature=1)
    assert (default.values == one.values).all()
    assert type(default.solved) is type(one.solved)


def test_sharper_with_lower_temperature() -> None:
    eta = np.random.default_rng(0).normal(size=10)
    graph = FactorGraph()
    graph.add(Budget(graph.variable_from(eta), 3))
    kept = [(graph.solve(temperature=t).values > 0.0).sum() for t in (3.0, 1.0, 0.3, 0.01)]
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] == 3
    np.testing.assert_allclose(graph.solution.values, graph.solve_map().values, atol=1e-6)


@pytest.mark.parametrize("first", [0.01, 1.0, 50.0])
def test_warm_starts_across_temperatures(first: float) -> None:
    eta, pairs = drawn(4)
    cold = graph_of(eta, pairs).solve(temperature=0.5, tol=1e-9)
    start = graph_of(eta, pairs).solve(temperature=first)
    warm = graph_of(eta, pairs).solve(temperature=0.5, tol=1e-9, warm_start=start)
    assert warm.ok
    np.testing.assert_allclose(warm.values, cold.values, atol=1e-7)
    linear = graph_of(eta, pairs).solve_map()
    again = graph_of(eta, pairs).solve(temperature=0.5, tol=1e-9, warm_start=linear)
    np.testing.assert_allclose(again.values, cold.values, atol=1e-7)


@pytest.mark.parametrize("temperature", [1e-6, 0.1, 20.0])
def test_decoding(temperature: float) -> None:
    """Scores and bounds of assignments are those of the given scores."""
    pytest.importorskip("lpsmap_decode")
    eta, pairs = drawn(5)
    graph = graph_of(eta, pairs)
    best = graph.solve_map(exact=True)
    found = graph.solve(temperature=temperature).decode()
    np.testing.assert_allclose(found.score, best.score, atol=1e-9)
    assert (found.bound >= best.score - 1e-12).all()
    assert found.proved.all()
    relaxed = graph.solve(temperature=temperature)
    assert (relaxed.solved.assignment_bound() >= best.score - 1e-9).all()


def test_structures_have_the_given_scores() -> None:
    graph = FactorGraph()
    scores = np.array([[1.0, 0.0], [0.0, 2.0]])
    tags = graph.add(Sequence(graph.variable_from(scores), np.array([[0.0, 1.0], [0.0, 0.0]])))
    graph.solve(temperature=0.01)
    (only,) = graph.structures(tags)[0]
    assert (only.score, only.variables.tolist()) == (4.0, [[1.0, 0.0], [0.0, 1.0]])


def test_masks_and_bad_scores() -> None:
    for forbidden in (-np.inf, -1e9, -1e300):
        graph = FactorGraph()
        u = graph.variable_from(np.array([0.3, forbidden, 0.1]))
        graph.add(Xor(u))
        found = graph.solve(temperature=2.0)
        np.testing.assert_allclose(found.values, [0.55, 0.0, 0.45], atol=1e-9)
        assert np.isfinite(found.objective).all()
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.3, 0.1], [np.nan, 0.1], [-np.inf, -np.inf]]))
    graph.add(Xor(u))
    with pytest.warns(match="not solved"):
        found = graph.solve(temperature=2.0)
    expected = [Status.SOLVED, Status.NON_FINITE, Status.INFEASIBLE]
    assert found.status.tolist() == expected


def test_finite_scores_whose_quotients_overflow_are_refused() -> None:
    """Otherwise -1e305 would forbid, and 1e305 and 2e305 would tie."""
    for scores in ([1e305, 2e305], [-1e305, -2e305]):
        graph = FactorGraph()
        graph.add(Xor(graph.variable_from(np.array(scores))))
        with pytest.raises(ValueError, match=r"temperature: got 1e-08, by which a score of"):
            graph.solve(temperature=1e-8)


@pytest.mark.parametrize("bad", [0, 0.0, -1.0, np.nan, np.inf, -np.inf, 10**400])
def test_other_numbers(bad: Any) -> None:
    with pytest.raises(ValueError, match="temperature: got .*; expected a positive number"):
        graph_of(*drawn()).solve(temperature=bad)


@pytest.mark.parametrize("bad", [None, True, "1", [1.0, 2.0], np.ones(2), 1j])
def test_other_types(bad: Any) -> None:
    with pytest.raises(TypeError, match="temperature: got .*; expected a positive number"):
        graph_of(*drawn()).solve(temperature=bad)


@pytest.mark.parametrize("good", [2, np.float32(2.0), np.array(2.0), np.int8(2)])
def test_numbers_of_numpy(good: Any) -> None:
    found = graph_of(*drawn()).solve(temperature=good)
    assert (found.values == graph_of(*drawn()).solve(temperature=2.0).values).all()


def test_map_has_no_temperature() -> None:
    with pytest.raises(TypeError, match="temperature"):
        graph_of(*drawn()).solve_map(temperature=1.0)  # type: ignore[call-arg]
