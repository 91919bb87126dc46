"""The backward pass against the dense reference: eigenvectors of S, and its powers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dense import eigenprojection, local_jacobians
from lpsmap import AtMostOne, ConvergenceWarning, FactorGraph, Pair, Potts, Xor
from lpsmap_core import Factor, LocalSolver, Options, Solution
from random_graphs import random_graph

FloatArray = npt.NDArray[np.float64]


def jacobian_of(solution: Solution) -> FloatArray:
    """Return the Jacobian in the scores, on the part's variables."""
    state = solution.solved.state
    variables = state.part.variables
    rows = [solution.vjp(row)[0] for row in np.eye(len(solution.values))[variables]]
    return np.array(rows)[:, variables]


def test_against_the_eigenvectors_of_s(draws: int) -> None:
    slowest = 0.0
    for seed in range(draws // 5):
        drawn = random_graph(np.random.default_rng(seed), 5, scale=0.7)
        graph, _, _ = drawn.build()
        solution = graph.solve(tol=1e-10, max_iter=20_000)
        expected, second = eigenprojection(local_jacobians(solution).s)
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
    s = local_jacobians(solution).s
    power = s
    for _ in range(20):
        power = power @ power
    np.testing.assert_allclose(jacobian_of(solution), power, atol=1e-7)


def test_products_are_exact_to_rounding_on_large_components() -> None:
    graph = FactorGraph()
    u = graph.variable_from(3.0 * np.random.default_rng(2).normal(size=(16, 20)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    solution = graph.solve(tol=1e-9)
    d = np.random.default_rng(3).normal(size=320)
    once, _ = solution.vjp(d)
    twice, _ = solution.vjp(once)
    np.testing.assert_allclose(twice, once, atol=1e-10)
    np.testing.assert_allclose(once.reshape(16, 20).sum(axis=1), 0.0, atol=1e-10)
    expected, _ = eigenprojection(local_jacobians(solution).s)
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


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-100, 1e100, 1e200, 1e300])
def test_products_with_tiny_and_huge_vectors_are_scaled_ones(scale: float) -> None:
    """Their squares are no numbers; each component has a scale of its own."""
    rng = np.random.default_rng(3)
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((3, 3, 4)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    pairs = graph.add(Pair(u[:, 0, :2], u[:, 1, :2], rng.standard_normal((3, 2))))
    solution = graph.solve(tol=1e-10)
    d, d_v = rng.standard_normal((3, 12)), rng.standard_normal((3, 2))
    extra = [np.zeros(0)] * graph.factors.index(pairs)
    expected, expected_v = solution.vjp(d.reshape(-1), [*extra, d_v])
    scales = np.array([[1.0], [scale], [1.0]])
    found, found_v = solution.vjp((scales * d).reshape(-1), [*extra, scales * d_v])
    # numbers below 1e-308 have few digits
    slack = {"rtol": 1e-9 if scale > 1e-300 else 1e-3, "atol": 1e-12}
    for got, wanted in ((found, expected), (found_v[-1], expected_v[-1])):
        got, wanted = (np.reshape(x, (3, -1)) for x in (got, wanted))
        np.testing.assert_array_equal(got[[0, 2]], wanted[[0, 2]])
        np.testing.assert_allclose(got[1] / scale, wanted[1], **slack)


@pytest.mark.compiled
@pytest.mark.parametrize("threads", [1, 2])
def test_the_limit_of_the_solve_is_that_of_a_product(threads: int) -> None:
    """A grid of Potts factors asks for thousands of products; what is not reached is zero."""
    rng = np.random.default_rng(6)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(4, 60, 60, 3)))
    graph.add(Potts(u[:, :, :-1], u[:, :, 1:], rng.normal(size=(4, 60, 59))))
    graph.add(Potts(u[:, :-1], u[:, 1:], rng.normal(size=(4, 59, 60))))
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve(max_time=0.3, threads=threads)
    solution.solved.state.options = Options(max_time=1e-9)  # type: ignore[attr-defined]
    d = rng.normal(size=u.size)
    with pytest.warns(RuntimeWarning, match="stopped after 1e-09 seconds; raise max_time"):
        product, (across, _) = solution.vjp(d)
    assert not product.any()
    assert not across.any()
    solution.solved.state.options = Options(max_time=0.2)  # type: ignore[attr-defined]
    with pytest.warns(RuntimeWarning, match="approximate, .* 0.2 seconds"):
        begin = time.perf_counter()
        product, _ = solution.vjp(d)
    assert time.perf_counter() - begin < 5.0
    assert 0.0 < np.linalg.norm(product) <= np.linalg.norm(d)  # of a projection, on its way


class NaNs(LocalSolver):
    """A faulty local solver, whose Jacobian is NaN."""

    def solve(self, rows: Any, a: Any, eta_v: Any, z: Any, v: Any, max_iterations: int) -> None:
        self.make_finite(rows, a, eta_v)
        np.clip(a, 0.0, 1.0 / self.delta, out=z)

    def jvp(self, rows: Any, d_u: Any, d_v: Any, out_u: Any, out_v: Any) -> None:
        out_u[:] = np.nan


class Faulty(Factor):
    """Variables that are free, by that solver."""

    @classmethod
    def local_solver(cls) -> type[LocalSolver]:
        return NaNs

    def solve_map(self, eta_u: Any, eta_v: Any) -> Any:
        return tuple(np.flatnonzero(eta_u > 0.0).tolist())

    def vertex(self, structure: Any) -> Any:
        return np.isin(np.arange(*self.event_shape), structure), []


@pytest.mark.parametrize("shared", [False, True])
def test_a_product_with_nan_is_nan_also_beside_other_factors(shared: bool) -> None:
    graph = FactorGraph()
    u = graph.variable_from([[0.3, 0.2, -0.5], [0.7, 0.2, 0.1]])
    graph.add(Faulty(u))
    if shared:
        graph.add(AtMostOne(u, axis=0))
    d, _ = graph.solve().vjp(np.ones(6))
    assert np.isnan(d).all()
