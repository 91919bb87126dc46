"""Checks of solvers of whole graphs."""

from __future__ import annotations

import numpy as np

from lpsmap_core.solution.map_solver import Answer, MapSolver, Program, SolverLimits
from lpsmap_core.testing.rules import ConformanceError, broken
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["check_map_solver"]

PROGRAMS = 30
"""Number of random programs; some are infeasible."""

EXACT = 1e-6
"""Allowed relative error of scores and bounds."""


def check_map_solver(solver: type[MapSolver], *, seed: int = 0) -> None:
    """Compare a solver with enumeration of all assignments on small programs.

    Parameters
    ----------
    solver
        The solver.
    seed
        Seed of the programs.

    Raises
    ------
    ConformanceError
        If an assignment is not the best, if a bound does not hold, or if the solver refuses all
        programs.
    """
    rng, n_accepted = np.random.default_rng(seed), 0
    for _ in range(PROGRAMS):
        program = _draw(rng)
        if solver().refuses(program) is None:
            n_accepted += 1
            _check(solver, program)
    if not n_accepted:
        raise broken(
            "a solver accepts some programs, because the check needs solutions",
            "refusals of all random programs, with up to 6 variables and 4 rows",
            "solutions of some of them",
            solver.__name__,
        )


def _draw(rng: np.random.Generator) -> Program:
    """Return a random program without additionals."""
    n, m = int(rng.integers(1, 7)), int(rng.integers(0, 5))
    matrix = rng.integers(-1, 2, size=(m, n)) * (rng.random((m, n)) < 0.7)
    low = np.where(rng.random(m) < 0.5, rng.integers(-2, 2, size=m), -np.inf)
    high = np.maximum(np.where(rng.random(m) < 0.5, rng.integers(-1, 3, size=m), np.inf), low)
    row, column = np.nonzero(matrix)
    return Program(
        variables=np.arange(n),
        scores=rng.normal(size=n),
        upper=np.where(rng.random(n) < 0.9, 1.0, 0.0),
        n_auxiliary=0,
        row=row,
        column=column,
        coefficient=matrix[row, column].astype(np.float64),
        low=low,
        high=high,
        masks=np.zeros(n),
    )


def _check(solver: type[MapSolver], program: Program) -> None:
    limits = SolverLimits(0.0, None, 1)
    answer, best = solver().solve(program, limits), _best(program)
    wrong = _fault(program, answer, best)
    if wrong is not None:
        got, expected = wrong
        raise broken(
            "an answer is the best of all assignments, with a bound that holds, because users rely "
            "on it as a proof",
            got,
            expected,
            f"{solver.__name__}, for {program}",
        )


def _fault(program: Program, answer: Answer, best: float) -> tuple[str, str] | None:
    """Return a fault of an answer and the expected value, or None."""
    if not isinstance(answer, Answer):
        raise ConformanceError(f"solve returned a {type(answer).__name__}; expected an Answer.")
    slack = EXACT * max(1.0, abs(best)) if np.isfinite(best) else 0.0
    if answer.bound < best - slack or np.isnan(answer.bound):
        return f"the bound {answer.bound}", f"at least {best}, the score of the best assignment"
    if answer.values is None:
        return None if best == -np.inf else ("no assignment", f"one that scores {best}")
    x = np.rint(np.asarray(answer.values, dtype=np.float64))
    if x.shape != program.variables.shape or np.abs(x - answer.values).max() > EXACT:
        return f"values {answer.values}", f"{len(program.variables)} numbers that are 0 or 1"
    if not _feasible(program, x[None])[0]:
        return f"values {x}, which violate a row or a bound", "a feasible assignment"
    if x @ program.scores < best - slack:
        return f"an assignment that scores {x @ program.scores}", f"one that scores {best}"
    return None


def _best(program: Program) -> float:
    """Return the score of the best of all assignments, or -inf if none is feasible."""
    n = len(program.scores)
    x = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.float64)
    feasible = _feasible(program, x)
    return float((x @ program.scores)[feasible].max(initial=-np.inf))


def _feasible(program: Program, x: FloatArray) -> BoolArray:
    """Return flags of the assignments that meet all rows and bounds."""
    matrix = np.zeros((len(program.low), len(program.scores)))
    matrix[program.row, program.column] = program.coefficient
    sums = x @ matrix.T
    met = [sums >= program.low, sums <= program.high, x <= program.upper]
    return np.asarray(np.concatenate(met, axis=1).all(axis=1))
