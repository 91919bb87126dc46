"""Warm starts and new scores: the results of a cold start, in fewer iterations."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import (
    AtMostOne,
    Budget,
    DepTree,
    Factor,
    FactorGraph,
    Pair,
    Sequence,
    SequenceBudget,
    Solution,
    Variables,
    Xor,
)
from lpsmap_core import ConvergenceWarning
from random_graphs import Polytope, random_graph

FloatArray = npt.NDArray[np.float64]
Build = Callable[[FloatArray], tuple[FactorGraph, Variables]]


def matching(scores: FloatArray) -> tuple[FactorGraph, Variables]:
    """Return a matching with a pair, without which it would need no start."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    graph.add(Pair(u[:, 0, 0], u[:, 1, 1], np.zeros(len(scores))))
    return graph, u


def trees(scores: FloatArray) -> tuple[FactorGraph, Variables]:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(DepTree(u))
    graph.add(Budget(u, 2, axis=1))
    return graph, u


def chains(scores: FloatArray) -> tuple[FactorGraph, Variables]:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    batch, length, states = scores.shape
    graph.add(Sequence(u, np.zeros((batch, length - 1, states, states))))
    graph.add(AtMostOne(u, axis=1))
    return graph, u


@pytest.mark.parametrize("build", [matching, trees, chains])
def test_a_warm_start_saves_iterations_and_changes_nothing(build: Build) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(6, 7, 7))
    before = build(scores)[0].solve(tol=1e-10)
    before.vjp(np.ones(scores.size))  # which completes the faces
    scores = scores + 1e-3 * rng.normal(size=scores.shape)
    cold, warm = build(scores)[0], build(scores)[0]
    from_nothing, from_there = cold.solve(tol=1e-10), warm.solve(tol=1e-10, warm_start=before)
    assert from_there.ok
    np.testing.assert_allclose(from_there.values, from_nothing.values, rtol=0, atol=1e-9)
    d = rng.normal(size=scores.size)
    np.testing.assert_allclose(from_there.vjp(d)[0], from_nothing.vjp(d)[0], rtol=0, atol=1e-8)
    assert from_there.iterations.sum() < 0.8 * from_nothing.iterations.sum()


def test_random_graphs_from_far_away(draws: int) -> None:
    for seed in range(draws // 10):
        rng = np.random.default_rng(seed)
        drawn = random_graph(rng, int(rng.integers(1, 8)))
        other = drawn.build(eta=rng.normal(size=len(drawn.eta)))[0]
        graph, u, _ = drawn.build()
        expected = graph.solve(tol=1e-9, max_iter=20_000)
        values = u.value
        start = other.solve(tol=1e-9, max_iter=20_000)
        found = graph.solve(tol=1e-9, max_iter=20_000, warm_start=start)
        assert found.ok
        np.testing.assert_allclose(found.values, values, rtol=0, atol=1e-7, err_msg=str(seed))
        d = rng.normal(size=len(values))
        np.testing.assert_allclose(
            found.vjp(d)[0], expected.vjp(d)[0], rtol=0, atol=1e-6, err_msg=str(seed)
        )


def test_other_threads_than_before() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(150, 9, 9))
    one = trees(scores)[0].solve(threads=1)
    two = trees(scores)[0].solve(threads=2, warm_start=one)
    again = trees(scores)[0].solve(threads=2, warm_start=two)
    for other in (two, again):
        assert other.ok
        np.testing.assert_allclose(other.values, one.values, rtol=0, atol=1e-6)
        assert other.iterations.mean() < 0.7 * one.iterations.mean()


def test_other_forbidden_variables_than_before() -> None:
    """Active sets may hold structures that are forbidden now."""
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(4, 6, 6))
    before = chains(scores)[0].solve(tol=1e-9)
    forbidden = rng.random(scores.shape) < 0.15
    scores[forbidden] = -np.inf
    expected = chains(scores)[0].solve(tol=1e-9)
    found = chains(scores)[0].solve(tol=1e-9, warm_start=before)
    assert expected.ok
    np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-8)


def counting(budget: int, state: int, transitions: FloatArray) -> Callable[..., SequenceBudget]:
    """Return a way to declare chains that take a state so many times at most."""
    return functools.partial(
        SequenceBudget, transitions=transitions, budget=budget, counted_state=state
    )


def bounded(most: float) -> Callable[..., Polytope]:
    """Return a way to declare vectors of entries up to a bound, by an oracle in Python."""
    return functools.partial(Polytope, m=np.eye(6)[:4] * most, n=np.zeros((4, 0)))


@pytest.mark.parametrize("kind", ["chains", "polytopes"])
@pytest.mark.parametrize("beside", [True, False])
def test_other_parameters_than_before(kind: str, beside: bool) -> None:
    """Structures of chains that take a state four times came out where one time was allowed."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        w, x = rng.normal(size=(3, 3)), 1.0 + rng.normal(size=(5, 3))
        ways = [counting(4, 0, w), counting(1, 0, w), counting(1, 1, w), counting(0, 0, w)]
        if kind == "polytopes":
            x, ways = x.reshape(-1)[:6], [bounded(1.0), bounded(0.5)]

        def build(way: Callable[..., Factor], x: FloatArray = x) -> FactorGraph:
            graph = FactorGraph()
            u = graph.variable_from(x)
            graph.add(way(u))
            if beside:
                graph.add(Budget(u.reshape(-1)[:3], 2))
            return graph

        for before, after in itertools.permutations(ways, 2):
            expected = build(after).solve(tol=1e-10)
            found = build(after).solve(tol=1e-10, warm_start=build(before).solve(tol=1e-10))
            np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-9)


def test_failed_components_start_anew() -> None:
    scores = np.random.default_rng(3).normal(size=(3, 4, 5))
    broken = scores.copy()
    broken[0, 0, 0], broken[1, 2] = np.nan, -np.inf
    with pytest.warns(ConvergenceWarning):
        before = matching(broken)[0].solve()
    found = matching(scores)[0].solve(tol=1e-9, warm_start=before)
    expected = matching(scores)[0].solve(tol=1e-9)
    np.testing.assert_allclose(found.values, expected.values, rtol=0, atol=1e-8)
    assert found.iterations[0] == expected.iterations[0]
    assert found.iterations[2] < expected.iterations[2]


def test_another_graph_is_refused() -> None:
    scores = np.zeros((2, 3, 3))
    solution = matching(scores)[0].solve()
    for other in (matching(np.zeros((2, 3, 4)))[0], trees(scores)[0]):
        with pytest.raises(ValueError, match="warm_start: got .*expected one with the same"):
            other.solve(warm_start=solution)


# -------------------------------------------------------------------- new scores


def rescored(graph: FactorGraph, u: Variables, factor: Any, scores: Any, extra: Any) -> Solution:
    graph.rescore(u, scores)
    graph.rescore(factor, extra)
    return graph.solve(tol=1e-10)


def test_rescoring_is_building_anew() -> None:
    rng = np.random.default_rng(4)
    graph = FactorGraph()
    graph.variable_from(rng.normal(size=3))
    u = graph.variable_from(rng.normal(size=(4, 5)))
    graph.add(Xor(u))
    pairs = graph.add(Pair(u[:, 0], u[:, 1], rng.normal(size=4)))
    first = graph.solve()
    scores, extra = rng.normal(size=(4, 5)), rng.normal(size=4)
    solution = rescored(graph, u, pairs, scores, extra)
    assert solution.layout is first.layout
    other = FactorGraph()
    v = other.variable_from(scores)
    other.add(Xor(v))
    other_pairs = other.add(Pair(v[:, 0], v[:, 1], extra))
    other.solve(tol=1e-10)
    np.testing.assert_allclose(u.value, v.value, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        graph.additionals_of(pairs), other.additionals_of(other_pairs), rtol=0, atol=1e-9
    )


@pytest.mark.filterwarnings("ignore:declared over variables of this graph")
def test_rescoring_refuses() -> None:
    graph, u = matching(np.zeros((2, 3, 3)))
    with pytest.raises(ValueError, match=r"rescore: got scores of shape \(2, 3\); expected \(2, 3"):
        graph.rescore(u, np.zeros((2, 3)))
    for part in (u[0], ~u, u.transpose(0, 2, 1), matching(np.zeros((2, 3, 3)))[1]):
        with pytest.raises(ValueError, match="not a block of this graph"):
            graph.rescore(part, np.zeros(part.shape))
    with pytest.raises(ValueError, match="expected a factor with additionals"):
        graph.rescore(graph.factors[0], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="rescore: .* is not in this graph"):
        graph.rescore(Xor(u), np.zeros(3))
    with pytest.raises(TypeError, match="real numbers"):
        graph.rescore(u, np.zeros((2, 3, 3), dtype=complex))
    graph.solve()
    graph.rescore(u, np.ones((2, 3, 3)))
    with pytest.raises(RuntimeError, match="not solved since its last change"):
        _ = u.value


@pytest.mark.parametrize("jump", [1e-5, 1e-3, 0.01, 0.1, 10.0, 100.0, 1e3, 1e5])
def test_after_a_jump_of_the_scores_the_loop_starts_from_nothing(jump: float) -> None:
    """Duals of another size took several times the iterations, or 3,000 and no solution."""
    rng = np.random.default_rng(8)
    scores = rng.normal(size=(16, 6, 8))
    start = matching(scores)[0].solve()
    later = jump * (scores + 0.05 * rng.normal(size=scores.shape))
    cold = matching(later)[0].solve()
    warm = matching(later)[0].solve(warm_start=start)
    assert warm.ok
    assert warm.iterations.sum() <= 1.1 * cold.iterations.sum()
    np.testing.assert_allclose(warm.values, cold.values, rtol=0, atol=1e-6)
