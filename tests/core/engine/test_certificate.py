"""Certified errors: never less than the true ones, and close to them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import AtMostOne, DepTree, FactorGraph, Pair, Sequence, Status, Xor
from lpsmap_core import ConvergenceWarning
from random_graphs import Polytope, random_graph

FloatArray = npt.NDArray[np.float64]

SCALES = (1e-6, 1e-3, 0.1, 1.0, 1.0, 10.0, 1e3, 1e6)

JUDGED = 1e-9
"""Accuracy of the judge."""


def check_certificate(seed: int) -> list[tuple[float, float]]:
    """Hold certified against true errors at several tolerances; return both.

    Returns nothing for the very few graphs that the judge cannot vouch for.
    """
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 8)), float(rng.choice(SCALES)))
    try:
        mu, nus = graph.judged()
    except ArithmeticError:
        return []
    scale = max(1.0, *(np.abs(s).max(initial=0.0) for s in [graph.eta, *graph.eta_v]))
    found = []
    for tol in (0.1, 1e-6, 1e-12):  # at 0.01 most are exact, and have no error to bound
        built, u, _ = graph.build()
        solution = built.solve(tol=tol, max_iter=20_000)
        assert solution.ok, (seed, tol)
        component = solution.component_of(u)
        n = len(solution.status)
        error = np.sqrt(np.bincount(component + 1, (u.value - mu) ** 2, n + 1)[1:])
        assert (error <= solution.error_bound + JUDGED).all(), (seed, tol, error)
        found += list(zip(error.tolist(), solution.error_bound.tolist(), strict=True))
        inside = component >= 0
        most = graph.eta[inside] @ mu[inside] - 0.5 * mu[inside] @ mu[inside]
        most += sum(float(e @ nu) for e, nu in zip(graph.eta_v, nus, strict=True))
        bound = float((solution.objective + solution.gap).sum())
        assert most <= bound + 1e-8 * scale, (seed, tol)
    return found


def check_they_are_close(found: list[tuple[float, float]]) -> None:
    error, bound = np.array(found).T
    assert np.isfinite(bound).mean() > 0.98
    far = error > 1e-4
    assert far.sum() > len(found) / 50
    assert np.median(bound[far] / error[far]) < 1.1
    assert np.median(bound) < 1e-7


def test_certified_errors(draws: int) -> None:
    n_graphs = max(16, draws // 8)  # fewer have no error to speak of
    check_they_are_close([x for seed in range(n_graphs) for x in check_certificate(seed)])


@pytest.mark.slow
def test_certified_errors_of_five_thousand_graphs() -> None:
    seeds = iter(range(50_000, 55_050))
    found: list[tuple[float, float]] = []
    for _ in range(5000):
        judged: list[tuple[float, float]] = []
        while not judged:
            judged = check_certificate(next(seeds))
        found += judged
    check_they_are_close(found)


def test_an_active_set_cut_short_is_certified_by_its_gap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        eta = rng.normal(size=(2, 6))
        graph = FactorGraph()
        u = graph.variable_from(0.1 * eta)
        graph.add(Polytope(u, np.eye(6)))
        with pytest.warns(ConvergenceWarning, match="raise max_inner_iter"):
            solution = graph.solve(max_inner_iter=2)
        short = u.value
        assert graph.solve().status.tolist() == [Status.SOLVED] * 2
        error = np.linalg.norm(short - u.value, axis=1)
        assert (error > 0.01).all()
        assert (error <= solution.error_bound).all()
        assert (solution.error_bound < 1.0).all()


def test_an_outer_limit_does_not_spoil_the_certificate() -> None:
    scores = np.random.default_rng(1).normal(size=(8, 10))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        solution = graph.solve(max_iter=3, adapt=False)
    early = u.value
    assert graph.solve(tol=1e-13).ok
    error = np.linalg.norm(early - u.value)
    assert error == pytest.approx(solution.error_bound[0], rel=1e-6)
    assert graph.solve(tol=1e-13).error_bound[0] < 1e-9


def test_forbidden_variables_do_not_spoil_the_certificate() -> None:
    scores = np.random.default_rng(2).normal(size=(3, 5, 6))
    scores[:, [0, 1, 2], [0, 3, 2]] = -np.inf
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    graph.add(Pair(u[:, 0, 1], ~u[:, 0, 2], np.array([1.0, -1.0, -np.inf])))
    solution = graph.solve(tol=1e-4)
    assert solution.ok
    rough = u.value
    assert graph.solve(tol=1e-12).ok
    error = np.linalg.norm((rough - u.value).reshape(3, -1), axis=1)
    assert (error <= solution.error_bound).all()
    assert (solution.error_bound < 1e-3).all()


def test_nothing_is_certified_where_there_is_no_solution() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.1, 0.2], [np.nan, 0.3], [-np.inf, -np.inf]]))
    graph.add(Polytope(u, judges.xor(2)[0]))
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve()
    assert np.isfinite(solution.error_bound).tolist() == [True, False, False]
    assert np.isinf(solution.gap[1])
    free = FactorGraph()
    free.variable(3)
    assert free.solve().error_bound.shape == (0,)


def test_statuses_tell_exact_from_converged() -> None:
    scores = np.random.default_rng(3).normal(size=(6, 7))
    statuses = []
    for tol, adapt in ((1e-1, False), (1e-12, True)):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=0))
        solution = graph.solve(tol=tol, adapt=adapt)
        assert solution.ok
        statuses.append(solution.status[0])
    assert statuses == [Status.CONVERGED, Status.SOLVED]


def test_tolerances_below_rounding_end() -> None:
    for scale in (1.0, 1e4, 1e8):
        graph = FactorGraph()
        u = graph.variable_from(scale * np.random.default_rng(4).normal(size=(5, 6)))
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=0))
        assert graph.solve(tol=1e-14).ok


def test_time_limit() -> None:
    scores = np.random.default_rng(5).normal(size=(40, 40))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(DepTree(u))
    graph.add(AtMostOne(u, axis=1))
    begin = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="raise max_time"):
        solution = graph.solve(max_time=1e-9, tol=1e-12)
    assert time.perf_counter() - begin < 5.0
    assert solution.status.tolist() == [Status.TIME_LIMIT]
    assert np.isfinite(u.value).all()
    with_time = graph.solve(max_time=1e9)
    in_steps = u.value
    assert with_time.ok
    np.testing.assert_array_equal(graph.solve().values, in_steps.reshape(-1))
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="max_time: got .* expected a positive number"):
            graph.solve(max_time=wrong)


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("kind", [Sequence, DepTree])
def test_errors_of_lone_factors_without_time(kind: Any) -> None:
    """A factor that was stopped before its first solution has a point outside its polytope."""
    scores = 0.01 * np.random.default_rng(0).standard_normal((2, 20, 20))
    more = (np.zeros((20, 20)),) if kind is Sequence else ()
    found = []
    for seconds in (None, 1e-9, 1e-3):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(kind(u, *more))
        solution = graph.solve(max_time=seconds)
        found.append(u.value)
        error = np.sqrt(((u.value - found[0]) ** 2).sum(axis=(1, 2)))
        assert (error <= solution.error_bound + 1e-9).all()
