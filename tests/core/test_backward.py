"""The backward pass against the dense reference: eigenvectors of S, and its powers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import AtMostOne, FactorGraph, Xor
from lpsmap_core.solution import Solution
from random_graphs import random_graph

FloatArray = npt.NDArray[np.float64]


def dense(solution: Solution) -> FloatArray:
    """Return S = C^T J C of a solution's only part, column by column (Proposition 3)."""
    state = solution.state
    part = state.part
    links = np.arange(part.n_links)
    copies = np.zeros((part.n_links, part.n_variables))
    copies[links, part.link_variable] = part.sign / part.delta
    jacobian = np.zeros((part.n_links, part.n_links))
    for b, solver in enumerate(state.solvers):
        bucket, lo, hi = part.buckets[b], part.starts[b], part.starts[b + 1]
        nothing, out_v = np.zeros(bucket.n_additionals), np.zeros(bucket.n_additionals)
        for i in range(hi - lo):
            one, column = np.zeros(hi - lo), np.zeros(hi - lo)
            one[i] = 1.0
            solver.jvp(np.arange(bucket.n_factors), one, nothing, column, out_v)
            jacobian[lo:hi, lo + i] = column
    np.testing.assert_allclose(jacobian, jacobian.T, atol=1e-10)
    np.testing.assert_allclose(jacobian @ jacobian, jacobian, atol=1e-8)
    return copies.T @ jacobian @ copies


def eigenprojection(s: FloatArray) -> tuple[FloatArray, float]:
    """Return the projection onto the eigenvalue-1 space, and the second eigenvalue."""
    values, vectors = np.linalg.eigh((s + s.T) / 2)
    ones = values > 1 - 1e-8
    assert values.max(initial=0.0) < 1 + 1e-9
    return vectors[:, ones] @ vectors[:, ones].T, float(values[~ones].max(initial=0.0))


def jacobian_of(solution: Solution) -> FloatArray:
    """Return the Jacobian in the scores, on the part's variables."""
    state = solution.state
    variables = state.part.variables
    rows = [solution.vjp(row)[0] for row in np.eye(len(solution.values))[variables]]
    return np.array(rows)[:, variables]


def test_against_the_eigenvectors_of_s(draws: int) -> None:
    slowest = 0.0
    for seed in range(draws // 5):
        drawn = random_graph(np.random.default_rng(seed), 5, scale=0.7)
        graph, _, _ = drawn.build()
        solution = graph.solve(tol=1e-10, max_iter=20_000)
        expected, second = eigenprojection(dense(solution))
        slowest = max(slowest, second)
        np.testing.assert_allclose(jacobian_of(solution), expected, atol=1e-8)
    assert slowest > 0.7, "none of the draws was hard"


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_against_powers_of_s(scale: float) -> None:
    graph = FactorGraph()
    u = graph.variable_from(scale * np.random.default_rng(1).normal(size=(8, 14)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    solution = graph.solve(tol=1e-10)
    s = dense(solution)
    power = s
    for _ in range(20):
        power = power @ power
    np.testing.assert_allclose(jacobian_of(solution), power, atol=1e-7)


def test_products_are_exact_to_rounding_on_large_components() -> None:
    graph = FactorGraph()
    u = graph.variable_from(3.0 * np.random.default_rng(2).normal(size=(25, 30)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    solution = graph.solve(tol=1e-9)
    d = np.random.default_rng(3).normal(size=750)
    once, _ = solution.vjp(d)
    twice, _ = solution.vjp(once)
    np.testing.assert_allclose(twice, once, atol=1e-10)
    np.testing.assert_allclose(once.reshape(25, 30).sum(axis=1), 0.0, atol=1e-10)
    expected, _ = eigenprojection(dense(solution))
    np.testing.assert_allclose(once, expected @ d, atol=1e-8)


def test_each_component_goes_at_its_own_pace() -> None:
    """One component's gradient does not depend on how hard the others are."""
    rng = np.random.default_rng(4)
    easy, hard = rng.normal(size=(2, 2)), 0.3 * rng.normal(size=(20, 24))
    d_easy, d_hard = rng.normal(size=(2, 2)), 1e6 * rng.normal(size=(20, 24))
    found = []
    for both in (False, True):
        graph = FactorGraph()
        blocks = [easy, hard] if both else [easy]
        for scores in blocks:
            u = graph.variable_from(scores)
            graph.add(Xor(u))
            graph.add(AtMostOne(u, axis=0))
        solution = graph.solve(tol=1e-9)
        d = np.concatenate([d_easy.reshape(-1), d_hard.reshape(-1)][: len(blocks)])
        found.append(solution.vjp(d)[0][:4])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)
