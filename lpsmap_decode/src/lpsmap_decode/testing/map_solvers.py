"""Checks of solvers of whole graphs."""

from __future__ import annotations

from numbers import Real

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray
from lpsmap_core.testing import ConformanceError, broken
from lpsmap_decode.solvers.map_solver import Answer, MapSolver, Program, SolverLimits

__all__ = ["check_map_solver"]

PROGRAMS = 30
"""Number of random programs; some are infeasible, and a third has an auxiliary column."""

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
            answer = solver().solve(program, SolverLimits(0.0, None, 1))
            wrong = _fault(program, answer, _best(program))
            if wrong is not None:
                raise broken(
                    "an answer is the best of all assignments, with a bound that holds, because "
                    "users rely on it as a proof",
                    *wrong,
                    f"{solver.__name__}, for {program}",
                )
    if not n_accepted:
        raise broken(
            "a solver accepts some programs, because the check needs solutions",
            "refusals of all random programs, with up to 6 variables and 4 rows",
            "solutions of some of them",
            solver.__name__,
        )


def _draw(rng: np.random.Generator) -> Program:
    """Return a random program without additionals, possibly with an auxiliary column.

    The auxiliary column has coefficients of 2, with which halves may be its only feasible values.
    """
    n, m = int(rng.integers(1, 7)), int(rng.integers(0, 5))
    n_auxiliary = int(rng.random() < 1.0 / 3.0)
    matrix = rng.integers(-1, 2, size=(m, n)) * (rng.random((m, n)) < 0.7)
    matrix = np.hstack([matrix, rng.choice([-2, 0, 2], size=(m, n_auxiliary))])
    low = np.where(rng.random(m) < 0.5, rng.integers(-2, 2, size=m), -np.inf)
    high = np.maximum(np.where(rng.random(m) < 0.5, rng.integers(-1, 3, size=m), np.inf), low)
    row, column = np.nonzero(matrix)
    return Program(
        variables=np.arange(n),
        scores=np.append(rng.normal(size=n), np.zeros(n_auxiliary)),
        upper=np.append(np.where(rng.random(n) < 0.9, 1.0, 0.0), np.ones(n_auxiliary)),
        n_auxiliary=n_auxiliary,
        row=row,
        column=column,
        coefficient=matrix[row, column].astype(np.float64),
        low=low,
        high=high,
        masks=np.zeros(n + n_auxiliary),
    )


def _fault(program: Program, answer: Answer, best: float) -> tuple[str, str] | None:
    """Return a fault of an answer and the expected value, or None."""
    if not isinstance(answer, Answer):
        raise ConformanceError(f"solve returned a {type(answer).__name__}; expected an Answer.")
    slack = EXACT * max(1.0, abs(best)) if np.isfinite(best) else 0.0
    if not isinstance(answer.bound, Real) or not answer.bound >= best - slack:  # NaN is not
        return f"the bound {answer.bound}", f"at least {best}, the score of the best assignment"
    if answer.values is None:
        return None if best == -np.inf else ("no assignment", f"one that scores {best}")
    values, n = np.asarray(answer.values), len(program.variables)
    if values.shape != (n,) or values.dtype.kind not in "fiub":
        return f"values {answer.values!r}", f"an array of {n} numbers that are 0 or 1"
    x = np.rint(values.astype(np.float64))
    if not np.abs(x - values).max() <= EXACT:
        return f"values {answer.values}", f"{n} numbers that are 0 or 1"
    if not _feasible(program, x[None])[0]:
        return f"values {x}, which violate a constraint or a bound", "a feasible assignment"
    score = float(x @ program.scores[:n])
    if score < best - slack:
        return f"an assignment that scores {score}", f"one that scores {best}"
    return None


def _best(program: Program) -> float:
    """Return the score of the best of all assignments, or -inf if none is feasible."""
    n = len(program.variables)
    x = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.float64)
    feasible = _feasible(program, x)
    return float((x @ program.scores[:n])[feasible].max(initial=-np.inf))


def _feasible(program: Program, x: FloatArray) -> BoolArray:
    """Return flags of the assignments that meet all rows and bounds, by some auxiliary number."""
    n = len(program.variables)
    matrix = np.zeros((len(program.low), len(program.scores)))
    matrix[program.row, program.column] = program.coefficient
    sums, by = x @ matrix[:, :n].T, matrix[:, n:].sum(axis=1)  # of one column or none
    low, high = program.low - sums, program.high - sums  # of `by` times the auxiliary number
    without, scaled = by == 0.0, by != 0.0
    met = ((low <= 0.0) & (high >= 0.0))[:, without].all(axis=1)
    met &= (x <= program.upper[:n]).all(axis=1)
    ends = np.stack([low, high])[:, :, scaled] / by[scaled]
    least = ends.min(axis=0).max(axis=1, initial=0.0)
    most = ends.max(axis=0).min(axis=1, initial=1.0)
    return np.asarray(met & (least <= most))
