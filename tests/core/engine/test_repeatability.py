"""Solving again, in any number of threads, changes no bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, Pair, Solution, Xor
from matchings import matching
from random_graphs import random_graph

FloatArray = npt.NDArray[np.float64]


def results(solution: Solution, d: FloatArray) -> list[FloatArray]:
    """Return everything that must repeat bit for bit."""
    gradient, extra = solution.vjp(d)
    return [
        solution.values,
        solution.objective,
        solution.iterations,
        solution.primal_residual,
        gradient,
        *solution.additionals,
        *extra,
    ]


def test_solving_again_changes_no_bit() -> None:
    for seed in range(5):
        drawn = random_graph(np.random.default_rng(seed), 8)
        d = np.random.default_rng(seed).normal(size=len(drawn.eta))
        graph, _, _ = drawn.build()
        first = results(graph.solve(max_iter=5000), d)
        again = results(graph.solve(max_iter=5000), d)
        for x, y in zip(first, again, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.compiled
def test_threads_change_no_bit() -> None:
    rng = np.random.default_rng(8)
    scores, weights = rng.normal(size=(1500, 9, 9)), rng.normal(size=1500)
    lengths = rng.integers(2, 10, size=1500)
    d = rng.normal(size=scores.size)
    found = []
    for threads in (1, 2, 3):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(DepTree(u, lengths=lengths))
        graph.add(Budget(u, 2, axis=-2))
        graph.add(Pair(u[:, 0, 1], u[:, 1, 0], weights))
        solution = graph.solve(threads=threads)
        assert graph.plan(threads).threads == threads
        assert solution.ok
        found.append(results(solution, d))
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.compiled
@pytest.mark.parametrize("attempt", range(20))
def test_threads_keep_to_their_components(attempt: int) -> None:
    """Two threads once wrote to each other's probes: one run in three had other bits somewhere."""
    scores = np.random.default_rng(0).normal(size=(256, 8, 14))
    found = []
    for threads in (1, 2):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        found.append(results(graph.solve(threads=threads), np.ones(scores.size)))
    for x, y in zip(*found, strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_order_of_declarations_matters_little() -> None:
    scores = np.random.default_rng(9).normal(size=(5, 6))
    graph, u = matching(scores)
    graph.solve(tol=1e-10)
    other = FactorGraph()
    v = other.variable_from(scores)
    other.add(AtMostOne(v, axis=0))
    for i in (3, 1, 0, 4, 2):
        other.add(Xor(v[i, ::-1]))
    other.solve(tol=1e-10)
    np.testing.assert_allclose(u.value, v.value, atol=1e-9)
