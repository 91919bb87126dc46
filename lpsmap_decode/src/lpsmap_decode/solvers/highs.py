"""HiGHS, a solver of mixed-integer linear programs (Huangfu & Hall 2018)."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import time
from typing import Any, ClassVar

import numpy as np

from lpsmap_core import Answer, MapSolver, Program, SolverLimits
from lpsmap_core.api import FloatArray

__all__ = ["HighsSolver", "model_of", "run_highs"]

POLL = 0.05
"""Seconds between two checks for Ctrl-C."""

PATIENCE = 0.3
"""Seconds that HiGHS may continue after Ctrl-C or its time limit: some of its stages do not check
for either."""

TOLERANCES = {
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}
"""The default tolerances of HiGHS weaken proofs: branches are pruned that could gain up to a
tolerance."""

SCALED_SCORE = 1024.0
"""Scores are scaled to about this maximum, since tolerances are absolute."""


@functools.cache
def _is_installed() -> bool:
    """Return whether highspy is installed; the look-up takes longer than a small search."""
    return importlib.util.find_spec("highspy") is not None


class HighsSolver(MapSolver):
    """HiGHS, through the package highspy: cutting planes and branch and bound."""

    name: ClassVar[str] = "highs"

    @classmethod
    def missing(cls) -> str | None:
        """Return a message if highspy is not installed."""
        if _is_installed():
            return None
        return "highspy is not installed. Install it with: pip install 'lpsmap-decode[highs]'"

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        """Solve a program; Ctrl-C ends it with the best assignment so far."""
        import highspy

        largest = float(np.abs(program.scores).max(initial=0.0))
        scale = float(np.exp2(np.round(np.log2(SCALED_SCORE / largest)))) if largest > 0.0 else 1.0
        highs = _silent()
        highs.HandleUserInterrupt = True
        options = {**TOLERANCES, "threads": limits.threads}
        options |= {"mip_rel_gap": limits.gap, "mip_abs_gap": limits.gap * scale}
        if limits.seconds is not None:
            options["time_limit"] = limits.seconds
        for name, value in options.items():
            highs.setOptionValue(name, value)
        highs.passModel(model_of(dataclasses.replace(program, scores=scale * program.scores)))
        best: list[FloatArray] = []
        highs.cbMipImprovingSolution += lambda event: best.append(
            np.array(event.data_out.mip_solution)
        )
        ended, interrupted = run_highs(highs, limits.seconds)
        if not ended:
            values = best[-1][: len(program.variables)] if best else None
            return Answer(values, np.inf, interrupted=interrupted)
        status, known = highs.getModelStatus(), highspy.HighsModelStatus
        # bounded, since all columns are
        if status in (known.kInfeasible, known.kUnboundedOrInfeasible):
            return Answer(None, -np.inf)
        if status not in (known.kOptimal, known.kTimeLimit, known.kInterrupt):
            return Answer(None, np.inf, interrupted=interrupted)
        info = highs.getInfo()
        bound = info.mip_dual_bound / scale if np.isfinite(info.mip_dual_bound) else np.inf
        values = None
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            values = np.array(highs.getSolution().col_value)[: len(program.variables)]
        return Answer(values, bound, max(int(info.mip_node_count), 0), interrupted)


def _silent() -> Any:
    """Return a HiGHS instance that does not print its banner when callbacks are enabled."""
    import highspy

    class Silent(highspy.Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:  # noqa: N802
            self.silent()
            super().enableCallbacks()

    highs = Silent()
    highs.silent()
    return highs


def model_of(program: Program) -> Any:
    """Return a program as a HiGHS model with a row-wise matrix."""
    import highspy

    model, n, m = highspy.HighsLp(), len(program.scores), len(program.low)
    model.num_col_, model.num_row_ = n, m
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_, model.col_upper_ = program.scores, np.zeros(n), program.upper
    model.row_lower_, model.row_upper_ = program.low, program.high
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(program.row, minlength=m))])
    model.a_matrix_.index_ = program.column
    model.a_matrix_.value_ = program.coefficient
    kinds = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    n_whole = len(program.variables)
    model.integrality_ = [kinds[0]] * n_whole + [kinds[1]] * (n - n_whole)
    return model


def run_highs(highs: Any, seconds: float | None = None) -> tuple[bool, bool]:
    """Solve in another thread; return whether it ended, and whether Ctrl-C was pressed.

    A thread that has not ended keeps its model alive and is not joined.
    """
    interrupted, give_up = False, np.inf
    if seconds is not None:
        give_up = time.monotonic() + seconds + PATIENCE
    highs.startSolve()
    while time.monotonic() < give_up:
        try:
            ended, _ = highs.wait(POLL)
            if ended:
                return True, interrupted
        except KeyboardInterrupt:
            interrupted, give_up = True, time.monotonic() + PATIENCE
            highs.cancelSolve()
    if not interrupted:
        highs.cancelSolve()
    return False, interrupted
