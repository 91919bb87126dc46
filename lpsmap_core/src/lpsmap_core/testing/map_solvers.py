"""Checks of solvers of whole graphs."""

from __future__ import annotations

import numpy as np

from lpsmap_core.solution.map_solver import Answer, MapSolver, Program, SolverLimits
from lpsmap_core.testing.rules import ConformanceError, broken
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["check_map_solver"]

PROGRAMS = 30
"""Programs that are drawn; some have no assignment."""

EXACT = 1e-6
"""What a score and a bound may be off by, relatively."""


def check_map_solver(solver: type[MapSolver], *, seed: int = 0) -> None:
    """Check a solver on small programs, against all their assignments.

    Parameters
    ----------
    solver
        The solver.
    seed
        Of the programs.

    Raises
    ------
    ConformanceError
        If an answer is not the best assignment, or a bound is none; or if it refuses all programs.
    """
    rng, taken = np.random.default_rng(seed), 0
    for _ in range(PROGRAMS):
        program = _draw(rng)
        if solver().refuses(program) is None:
            taken += 1
            _check(solver, program)
    if not taken:
        raise broken(
            "a solver takes some programs, because there is nothing else to hold it to",
            "refusals of all that were drawn, with up to 6 variables and 4 rows",
            "answers to some of them",
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
            "an answer is the best of all assignments, with a bound that holds, because users take "
            "it for a proof",
            got,
            expected,
            f"{solver.__name__}, for {program}",
        )


def _fault(program: Program, answer: Answer, best: float) -> tuple[str, str] | None:
    """Return what is wrong with an answer, and what is right."""
    if not isinstance(answer, Answer):
        raise ConformanceError(f"solve returned a {type(answer).__name__}; expected an Answer.")
    slack = EXACT * max(1.0, abs(best)) if np.isfinite(best) else 0.0
    if answer.bound < best - slack or np.isnan(answer.bound):
        return f"the bound {answer.bound}", f"{best} or more, what the best assignment scores"
    if answer.values is None:
        return None if best == -np.inf else ("no assignment", f"one that scores {best}")
    x = np.rint(np.asarray(answer.values, dtype=np.float64))
    if x.shape != program.variables.shape or np.abs(x - answer.values).max() > EXACT:
        return f"values {answer.values}", f"{len(program.variables)} numbers that are 0 or 1"
    if not _allowed(program, x[None])[0]:
        return f"values {x}, which break a row or a bound", "an assignment that is allowed"
    if x @ program.scores < best - slack:
        return f"an assignment that scores {x @ program.scores}", f"one that scores {best}"
    return None


def _best(program: Program) -> float:
    """Return the score of the best of all assignments; -inf if there is none."""
    n = len(program.scores)
    x = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.float64)
    allowed = _allowed(program, x)
    return float((x @ program.scores)[allowed].max(initial=-np.inf))


def _allowed(program: Program, x: FloatArray) -> BoolArray:
    """Return which assignments meet all rows and bounds."""
    matrix = np.zeros((len(program.low), len(program.scores)))
    matrix[program.row, program.column] = program.coefficient
    sums = x @ matrix.T
    fits = [sums >= program.low, sums <= program.high, x <= program.upper]
    return np.asarray(np.concatenate(fits, axis=1).all(axis=1))
