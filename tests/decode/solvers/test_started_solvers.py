"""Solvers continue from the assignment so far."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import Budget, FactorGraph, Knapsack
from lpsmap_core import Deadline
from lpsmap_decode import Answer, MapSolver, Program, SolverLimits
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.solvers.external_solver import improve_with_solver, unproved_programs
from lpsmap_decode.solvers.highs import HighsSolver
from lpsmap_decode.solvers.program import programs


class Started(MapSolver):
    """Returns what it starts from."""

    name = "started"

    def __init__(self) -> None:
        self.starts: list[npt.NDArray[np.float64] | None] = []

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        raise AssertionError("it has a better method")

    def solve_from(
        self, program: Program, limits: SolverLimits, start: npt.NDArray[np.float64] | None
    ) -> Answer:
        self.starts.append(start)
        return Answer(start, np.inf)


def graph_of(n: int = 6) -> FactorGraph:
    rng, graph = np.random.default_rng(0), FactorGraph()
    u = graph.variable_from(rng.random(n))
    graph.add(Knapsack(u, rng.random(n), 0.3 * n))
    graph.add(Budget(~u, n - 2))
    return graph


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_a_solver_starts_from_the_assignment() -> None:
    graph, solver = graph_of(), Started()
    known = graph.solve_map(exact=True)
    known.bound[:] = np.inf
    limits = SearchLimits(1e-8, None, Deadline(None), 1)
    found = improve_with_solver(known, solver, limits, unproved_programs(known))
    (start,) = solver.starts
    np.testing.assert_array_equal(start, known.values)
    np.testing.assert_array_equal(found.values, known.values)
    unknown = graph.solve_map(exact=True)
    unknown.bound[:], unknown.score[:] = np.inf, -np.inf
    improve_with_solver(unknown, solver, limits, unproved_programs(unknown))
    assert solver.starts[1] is None


def test_highs_takes_a_start() -> None:
    pytest.importorskip("highspy")
    graph = graph_of(12)
    best = graph.solve_map(exact=True, solver="lpsmap")
    flat = graph._flat()
    (program,) = programs(graph._laid_out(), graph.factors, *flat, np.array([0]))
    for start in (best.values, np.zeros(12), None):  # the second is not feasible
        answer = HighsSolver().solve_from(program, SolverLimits(1e-8, None, 1), start)
        assert answer.values is not None
        assert program.scores @ answer.values == pytest.approx(best.total)
        assert answer.bound == pytest.approx(best.total, abs=1e-6)
