"""Graphs that are solved again and again: each solution is its own."""

from __future__ import annotations

import gc
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import AtMostOne, FactorGraph, Xor
from lpsmap_core import Variables

FloatArray = npt.NDArray[np.float64]

SHAPE = (2, 5, 7)


def matching(scores: FloatArray) -> tuple[FactorGraph, Variables]:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    return graph, u


def draws(n: int) -> list[FloatArray]:
    return list(np.random.default_rng(3).standard_normal((n, *SHAPE)))


def test_solutions_share_no_memory_and_none_outlives_its_solution() -> None:
    graph, u = matching(draws(1)[0])
    held = [graph.solve(threads=1).solved.state for _ in range(3)]
    arrays = [array for state in held for array in state.problem.iterate]
    for i, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in arrays[:i])
    states = [weakref.ref(state) for state in held]
    gc.disable()
    try:
        del held, arrays, array
        graph.rescore(u, draws(1)[0])  # which forgets the solution
        assert [state() for state in states] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("quadratic", [True, False])
def test_solves_again_are_those_of_new_graphs(quadratic: bool) -> None:
    graph, u = matching(draws(1)[0])
    rng = np.random.default_rng(4)
    for k, scores in enumerate(draws(12)):
        scores *= 10.0 ** rng.integers(-3, 3)
        if k % 3 == 1:
            scores[rng.random(SHAPE) < 0.1] = -np.inf
        if k % 4 == 2:
            scores[0, 0, 0] = np.nan  # the first component is left out
        graph.rescore(u, scores)
        new, _ = matching(scores)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the component that is left out
            found, expected = (
                (one.solve(threads=1) if quadratic else one.solve_map(threads=1))
                for one in (graph, new)
            )
        d = rng.standard_normal(scores.size)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.status, expected.status)
        np.testing.assert_array_equal(found.iterations, expected.iterations)
        np.testing.assert_array_equal(found.vjp(d)[0], expected.vjp(d)[0])


def test_solutions_that_are_held_stay_what_they_are() -> None:
    first, *others = draws(8)
    graph, u = matching(first)
    held = graph.solve(threads=1)
    d = np.random.default_rng(5).standard_normal(first.size)
    known = held.values.copy(), held.vjp(d)[0], held.primal_residual.copy()
    for scores in others:
        graph.rescore(u, scores)
        graph.solve(threads=1)
    for now, before in zip((held.values, held.vjp(d)[0], held.primal_residual), known, strict=True):
        np.testing.assert_array_equal(now, before)
    assert (held.error_bound < 1e-5).all()
    graph.rescore(u, first)
    assert (graph.solve(threads=1, warm_start=held).iterations <= held.iterations).all()


def test_a_start_outlives_its_solution() -> None:
    first, *others = draws(5)
    graph, u = matching(first)
    graph.solve(threads=1)
    assert graph.solution is not None
    start = graph.solution.solved.end()
    assert start is not None
    known = start.u.copy(), start.duals.copy()
    for scores in others:
        graph.rescore(u, scores)
        graph.solve(threads=1)
    np.testing.assert_array_equal(start.u, known[0])
    np.testing.assert_array_equal(start.duals, known[1])


def test_products_of_one_solution_go_on_in_several_threads() -> None:
    scores = np.random.default_rng(6).standard_normal((40, 8, 14))
    graph, _ = matching(scores)
    solution = graph.solve(threads=1)
    vectors = np.random.default_rng(7).standard_normal((40, scores.size))
    expected = [solution.vjp(d)[0] for d in vectors]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda d: solution.vjp(d)[0], vectors))
    np.testing.assert_array_equal(found, expected)
