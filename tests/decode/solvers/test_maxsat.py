"""MaxSAT: its answers and bounds against all assignments, and what it refuses."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
import sys
import threading
from typing import Any

import numpy as np
import pytest

from lpsmap import AtMostOne, Budget, FactorGraph, Imply, Knapsack, Or, Xor
from lpsmap_core import Deadline, Variables
from lpsmap_decode import Answer, MapSolver, MaxSatSolver, Program, SolverLimits
from lpsmap_decode.exact_decoder import _first_by_clauses
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.solvers import maxsat
from lpsmap_decode.solvers.program import programs

SAT = pytest.mark.skipif(
    importlib.util.find_spec("pysat") is None,
    reason="python-sat is not installed: the extra [maxsat]",
)

N = 9
TRIED = np.array(list(itertools.product((0, 1), repeat=N)))


def drawn(seed: int, most: int) -> tuple[FactorGraph, np.ndarray]:
    """Return clauses and counts over nine variables, and the score of each assignment.

    Scores have up to `most` magnitudes; of many, the largest are masks.
    """
    rng, graph = np.random.default_rng(seed), FactorGraph()
    scores = rng.normal(size=N) * 10.0 ** -rng.integers(0, most, N)
    scores[rng.random(N) < 0.3] = 0.0
    u = graph.variable_from(scores)
    allowed = np.ones(len(TRIED), dtype=bool)
    for kind in (Or, Budget, Xor, AtMostOne, Imply):
        several = rng.integers(2, 6) if kind is not Imply else 2
        index = rng.choice(N, (2, several), replace=False) if several < 5 else None
        index = rng.choice(N, several, replace=False)[None] if index is None else index
        flips = rng.random(index.shape) < 0.5
        slots = Variables(u.graph, u.index[index], flips)
        graph.add(Budget(slots, 2) if kind is Budget else kind(slots))
        for places, negated in zip(index, flips, strict=True):
            on = TRIED[:, places] != negated
            count = on.sum(axis=1)
            allowed &= {
                Or: count >= 1,
                Budget: count <= 2,
                Xor: count == 1,
                AtMostOne: count <= 1,
                Imply: ~on[:, 0] | on[:, -1],
            }[kind]
    return graph, np.where(allowed, TRIED @ scores, -np.inf)


def program_of(graph: FactorGraph, component: int = 0) -> Program:
    (program,) = programs(graph._laid_out(), graph.factors, *graph._flat(), np.array([component]))
    return program


@SAT
@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(40))
def test_the_best_assignment_is_that_of_enumeration(seed: int) -> None:
    graph, scores = drawn(seed, 9)
    found = graph.solve_map(exact=True, solver="maxsat")
    if np.isneginf(scores.max()):
        assert not found.found.all()
        assert found.proved.all()
        return
    assert found.ok
    assert found.total == pytest.approx(scores.max(), abs=1e-9)
    assert (found.bound - found.score < 1e-6).all()


@SAT
@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_whenever_it_stops(seed: int) -> None:
    graph, scores = drawn(seed, 1)
    for solver, seconds in ((MaxSatSolver(), 0.0), (MaxSatSolver(until_found=True), None)):
        best = 0.0
        for c in range(graph._laid_out().n_components):
            program = program_of(graph, c)
            answer = solver.solve(program, SolverLimits(1e-8, seconds, 1))
            best += answer.bound
            if seconds is None:
                assert (answer.values is None) == (answer.bound == -np.inf)
        alone = graph.flat_scores()[graph._laid_out().component < 0]
        assert best + np.maximum(alone, 0.0).sum() >= scores.max() - 1e-12
        if seconds is None:
            assert (best == -np.inf) == np.isneginf(scores.max())


@SAT
def test_more_pigeons_than_holes_are_contradictory() -> None:
    graph = FactorGraph()
    u = graph.variable((7, 6))
    graph.add(Or(u))
    graph.add(AtMostOne(u.T))
    answer = MaxSatSolver().solve(program_of(graph), SolverLimits(1e-8, None, 1))
    assert answer.values is None
    assert answer.bound == -np.inf


def test_other_rows_are_refused() -> None:
    graph = FactorGraph()
    u = graph.variable(3)
    graph.add(Knapsack(u, [1.0, 2.5, 1.0], 2.0))
    refusal = MaxSatSolver().refuses(program_of(graph))
    assert refusal == "maxsat supports clauses and counts, but a row has other coefficients than 1."


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxsat, "is_installed", lambda module: False)
    graph = FactorGraph()
    graph.add(Xor(graph.variable(3)))
    with pytest.raises(ModuleNotFoundError, match=r"python-sat .*lpsmap-decode\[maxsat\]"):
        graph.solve_map(exact=True, solver="maxsat")


class Noting(MapSolver):
    """Notes its programs, refuses those of four variables, and finds the first variable."""

    name = "noting"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def refuses(self, program: Program) -> str | None:
        return "four variables" if len(program.variables) == 4 else None

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        self.sizes.append(len(program.variables))
        return Answer(np.eye(len(program.variables))[0], np.inf)


def test_components_without_an_assignment_are_passed_alone() -> None:
    graph, solver = FactorGraph(), Noting()
    for n in (2, 3, 4):
        graph.add(Xor(graph.variable_from(np.arange(float(n)))))
    known = graph.solve_map(exact=True)
    known.bound[:] = np.inf
    known.score[1:], known.values[2:] = -np.inf, np.nan
    limits = SearchLimits(1e-8, None, Deadline(None), 1)
    found = _first_by_clauses(known, solver, limits)
    assert solver.sizes == [3]
    assert found.score.tolist() == [1.0, 0.0, -np.inf]
    assert found.solver == "noting"
    known.score[:] = 0.0
    unchanged = _first_by_clauses(known, solver, limits)
    assert solver.sizes == [3]
    assert unchanged.solver == known.solver


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_a_run_that_does_not_hear_of_it() -> None:
    ended = threading.Event()

    def run() -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        ended.wait()

    assert maxsat._run_in_thread(run, ended.set, float("inf"))
