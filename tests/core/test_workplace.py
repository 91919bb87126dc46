"""Small graphs that are solved again and again work in the same memory, which nobody notices."""

from __future__ import annotations

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import AtMostOne, FactorGraph, Xor
from lpsmap_core import Variables
from lpsmap_core.engine import problem, workplace
from lpsmap_core.engine.problem import LoopProblem
from lpsmap_core.kernels.memory import Memory
from lpsmap_core.layout.layout import Part

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


@pytest.mark.parametrize("changed", [True, False])
def test_the_memory_of_a_solution_that_is_gone_serves_again(changed: bool) -> None:
    graph, u = matching(draws(1)[0])
    addresses = set()
    for scores in draws(6):
        if changed:  # which forgets the solution
            graph.rescore(u, scores)
        solved = graph.solve(threads=1).solved
        addresses.add(solved.state.problem.iterate.u.ctypes.data)
        del solved
    assert len(addresses) == (1 if changed else 2)


def test_solves_and_searches_in_turn_have_a_workplace_each(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []

    def new_problem(part: Part, quadratic: float) -> Memory[LoopProblem]:
        made.append(quadratic)
        return problem.new_problem(part, quadratic)

    monkeypatch.setattr(workplace, "new_problem", new_problem)
    graph, u = matching(draws(1)[0])
    for scores in draws(6):
        for solve in (graph.solve, graph.solve_map):
            graph.rescore(u, scores)
            solve(threads=1)
    assert sorted(made) == [0.0, 1.0]


def test_nothing_of_ours_runs_when_a_solution_goes() -> None:
    """Python would drop what the handler of a signal raises in there, such as Ctrl-C."""
    graph, u = matching(draws(1)[0])
    solution = graph.solve(threads=1)
    graph.rescore(u, draws(1)[0])  # which forgets it
    called: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name + " " + event))
    del solution
    sys.setprofile(before)
    assert [name for name in called if name.endswith(" call")] == []
    assert len(called) == 1  # of setprofile


@pytest.mark.parametrize("quadratic", [True, False])
def test_solves_in_used_memory_are_those_of_new_graphs(quadratic: bool) -> None:
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


def test_large_parts_make_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workplace, "SMALL", 10)
    graph, _ = matching(draws(1)[0])
    for _ in range(3):
        part = graph.solve(threads=1).layout.part
    assert not part.spare
