"""CP-SAT: clause learning and linear relaxations over integers (Perron & Didier)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lpsmap_decode import Answer, MapSolver, Program, SolverLimits

__all__ = ["CpSatSolver", "model_of", "solver_for"]

SCORE_BITS = 40
"""Scores are rounded to multiples of 2^-40 of the largest: sums of 2^20 scores fit into 64 bits."""

MIN_COEFFICIENT = 1e-6

FloatArray = npt.NDArray[np.float64]


class CpSatSolver(MapSolver):
    """OR-tools' CP-SAT."""

    name: ClassVar[str] = "cpsat"

    def refuses(self, program: Program) -> str | None:
        """Return a reason if a program has fractions, and None otherwise."""
        if program.n_auxiliary:
            return "CP-SAT supports only integers, but a factor type has auxiliary real numbers."
        scaled = program.coefficient / MIN_COEFFICIENT
        if np.abs(scaled - np.rint(scaled)).max(initial=0.0) > 1e-3:
            return (
                "CP-SAT supports only integers; expected coefficients that are multiples of "
                f"{MIN_COEFFICIENT:g}. Round them, or use another solver."
            )
        return None

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        """Solve a program whose columns are all integers."""
        from ortools.sat.python import cp_model

        (model, columns, unit), solver = model_of(program), solver_for(limits)
        status = solver.solve(model)
        if status == cp_model.INFEASIBLE:
            return Answer(None, -np.inf)
        rounding = 0.5 * unit * len(columns)
        bound = solver.best_objective_bound * unit + rounding
        values = None
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            values = np.array([solver.value(x) for x in columns[: len(program.variables)]], float)
        return Answer(values, bound, int(solver.num_branches))


def model_of(program: Program) -> tuple[Any, list[Any], float]:
    """Return a program as a CP-SAT model, its columns, and the unit of its objective."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    columns = [model.new_int_var(0, int(most), "") for most in program.upper]
    _add_rows(model, columns, program)
    unit = float(np.abs(program.scores).max(initial=0.0)) * 2.0**-SCORE_BITS or 1.0
    gains = np.rint(program.scores / unit).astype(np.int64).tolist()
    model.maximize(cp_model.LinearExpr.weighted_sum(columns, gains))
    return model, columns, unit


def solver_for(limits: SolverLimits) -> Any:
    """Return a CP-SAT solver with limits."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = limits.threads
    solver.parameters.linearization_level = 2
    solver.parameters.relative_gap_limit = limits.gap
    if limits.seconds is not None:
        solver.parameters.max_time_in_seconds = limits.seconds
    return solver


def _add_rows(model: Any, columns: list[Any], program: Program) -> None:
    """Add the constraints, scaled to integer coefficients."""
    from ortools.sat.python import cp_model

    ends = np.searchsorted(program.row, np.arange(len(program.low) + 1))
    for r, (begin, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        weights = program.coefficient[begin:end]
        integral = bool((weights == np.rint(weights)).all())
        unit = 1.0 if integral else MIN_COEFFICIENT
        of_row = [columns[j] for j in program.column[begin:end].tolist()]
        scaled = np.rint(weights / unit).astype(int).tolist()
        total = cp_model.LinearExpr.weighted_sum(of_row, scaled)
        if np.isfinite(program.high[r]):
            model.add(total <= int(np.floor(program.high[r] / unit + 1e-6)))
        if np.isfinite(program.low[r]):
            model.add(total >= int(np.ceil(program.low[r] / unit - 1e-6)))
