"""Linear programs by the simplex algorithm of HiGHS, with bounds that hold despite its tolerances.

HiGHS (Huangfu & Hall 2018) ends at points that are optimal up to tolerances, so that the value that
it reports may be below the true one. A bound for pruning must not. Here it is computed from the
row duals y alone, by weak duality: for every x of the program ``maximise <c, x>``,

    <c, x> = <c - A'y, x> + <y, A x> <= sum_j max(d_j l_j, d_j u_j) + sum_i max(y_i L_i, y_i U_i),

where ``d = c - A'y``, ``l <= x <= u`` and ``L <= A x <= U``. This holds for whatever y, optimal or
not. Rounding of the right-hand side is bounded too, and added. That needs bounds of all columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lpsmap_search.arrays import FloatArray, IntArray
from lpsmap_search.sparse_matrix import SparseMatrix, sums_at

__all__ = ["Basis", "LinearProgram", "LinearSolution", "SimplexSolver", "highspy_module"]

Status = Literal["optimal", "infeasible", "below", "stopped", "failed"]

Option = float | int | str | bool
"""Value of an option of HiGHS."""

BASIC = 1
"""HiGHS's number of a basic column or row."""

LARGE = 20_000
"""Entries of a program from which on it is solved in a thread, so that Ctrl-C ends it."""

LOOK = 0.05
"""Seconds between two looks whether Ctrl-C came."""

UNIT = float(np.finfo(np.float64).eps)
"""Relative rounding error of an operation, at most."""


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Maximise ``<objective, x>`` subject to bounds of the columns and of the rows.

    Raises
    ------
    ValueError
        If shapes do not fit each other, a bound of a column is infinite, or a number is NaN.
    """

    objective: FloatArray
    """(n,)."""
    lower: FloatArray
    """(n,) finite lower bounds of the columns."""
    upper: FloatArray
    """(n,) finite upper bounds."""
    matrix: SparseMatrix
    """(m, n) the rows."""
    row_lower: FloatArray
    """(m,) lower bounds of the rows, -inf allowed."""
    row_upper: FloatArray
    """(m,) upper bounds, inf allowed."""

    def __post_init__(self) -> None:
        n, m = len(self.objective), self.matrix.n_rows
        shapes = {
            "lower": (self.lower, n),
            "upper": (self.upper, n),
            "row_lower": (self.row_lower, m),
            "row_upper": (self.row_upper, m),
        }
        for name, (values, size) in shapes.items():
            if np.shape(values) != (size,):
                raise ValueError(f"{name}: got shape {np.shape(values)}; expected ({size},).")
        if self.matrix.n_columns != n:
            raise ValueError(f"matrix: got {self.matrix.n_columns} columns; expected {n}.")
        for name in ("objective", "lower", "upper"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(
                    f"{name}: got NaN or infinity; expected finite numbers. Give every column "
                    "bounds, which may be wide: the bound of the optimum needs them."
                )
        if np.isnan(self.row_lower).any() or np.isnan(self.row_upper).any():
            raise ValueError("row_lower, row_upper: got NaN; expected numbers or infinity.")


class Basis:
    """Which columns and rows are basic, and at which bound the others are. It can be pickled.

    Parameters
    ----------
    columns, rows
        The status of each, as HiGHS numbers it: 0 at the lower bound, 1 basic, 2 at the upper one.
    """

    def __init__(self, columns: bytes, rows: bytes) -> None:
        highspy = highspy_module()
        self._highs = highspy.HighsBasis()
        self._highs.col_status = [highspy.HighsBasisStatus(status) for status in columns]
        self._highs.row_status = [highspy.HighsBasisStatus(status) for status in rows]
        self._highs.valid = True
        self._n_rows = len(rows)

    @classmethod
    def from_highs(cls, basis: Any, n_rows: int) -> Basis:
        """Return a basis that HiGHS has, without a look at its statuses, which takes time."""
        found = cls.__new__(cls)
        found._highs, found._n_rows = basis, n_rows
        return found

    def statuses(self) -> tuple[bytes, bytes]:
        """Return those of the columns and of the rows."""
        columns, rows = self._highs.col_status, self._highs.row_status
        return bytes(map(int, columns)), bytes(map(int, rows))

    def __reduce__(self) -> tuple[Any, ...]:
        return Basis, self.statuses()

    def for_highs(self, n_rows: int) -> Any:
        """Return it for a program that may have another number of rows by now.

        Slacks of new rows are basic. HiGHS repairs a basis that lost rows.
        """
        if n_rows == self._n_rows:
            return self._highs
        columns, rows = self.statuses()
        new = bytes([BASIC]) * max(n_rows - self._n_rows, 0)
        found = Basis(columns, rows[:n_rows] + new)._highs
        found.alien = n_rows < self._n_rows
        return found


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """What a solve found."""

    status: Status
    """``"optimal"``; ``"infeasible"``; ``"below"`` the cutoff; ``"stopped"`` by the limit of time;
    ``"failed"``, for numerical reasons. The bound is valid in every case."""
    bound: float
    """No x of the program has a higher objective, HiGHS's tolerances and rounding considered; -inf
    if a dual ray proves that there is no x."""
    objective: float
    """What HiGHS takes for the objective of x. Do not prune by it."""
    x: FloatArray
    """(n,) the point, feasible up to HiGHS's tolerances if the status is ``"optimal"``."""
    reduced_costs: FloatArray
    """(n,) ``c - A'y``."""
    row_duals: FloatArray
    """(m,) y: by how much the optimum rises with a row's bound."""
    basis: Basis | None
    """Where to start from next time; None if HiGHS has none."""


class SimplexSolver:
    """A linear program that is solved again and again, changed a little in between.

    Objective, bounds and new rows go to HiGHS as they come. Coefficients go with the next solve.

    Parameters
    ----------
    program
        What to begin with.
    options
        Of HiGHS, such as ``{"simplex_strategy": 4}``.

    Raises
    ------
    ImportError
        If highspy is not installed.
    """

    def __init__(self, program: LinearProgram, options: Mapping[str, Option] | None = None) -> None:
        self._options = {"presolve": "off", "threads": 1, **(options or {})}
        self._highs = _silent(self._options)
        self._objective, self._lower, self._upper = (
            np.array(x, dtype=np.float64) for x in (program.objective, program.lower, program.upper)
        )
        self._row_lower, self._row_upper = (
            np.array(x, dtype=np.float64) for x in (program.row_lower, program.row_upper)
        )
        matrix = program.matrix
        self._matrix = SparseMatrix(
            matrix.start, matrix.column, matrix.value.astype(np.float64), matrix.n_columns
        )
        self._pass()

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self._objective)

    @property
    def n_rows(self) -> int:
        """Number of rows, those appended included."""
        return self._matrix.n_rows

    def change_objective(self, columns: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Set coefficients of the objective.

        Parameters
        ----------
        columns
            Numbers of the columns.
        values
            One for each, or one for all.
        """
        columns, (values,) = _broadcast(columns, values)
        self._objective[columns] = values
        self._highs.changeColsCost(len(columns), columns, -values)

    def change_bounds(
        self, columns: npt.ArrayLike, lower: npt.ArrayLike, upper: npt.ArrayLike
    ) -> None:
        """Set bounds of columns.

        Parameters
        ----------
        columns
            Numbers of the columns.
        lower, upper
            One for each, or one for all; finite.
        """
        columns, (lower, upper) = _broadcast(columns, lower, upper)
        self._lower[columns], self._upper[columns] = lower, upper
        self._highs.changeColsBounds(len(columns), columns, lower, upper)

    def change_row_bounds(
        self, rows: npt.ArrayLike, lower: npt.ArrayLike, upper: npt.ArrayLike
    ) -> None:
        """Set bounds of rows.

        Parameters
        ----------
        rows
            Numbers of the rows.
        lower, upper
            One for each, or one for all.
        """
        rows, (lower, upper) = _broadcast(rows, lower, upper)
        self._row_lower[rows], self._row_upper[rows] = lower, upper
        self._highs.changeRowsBounds(len(rows), rows, lower, upper)

    def change_coefficients(self, entries: IntArray, values: npt.ArrayLike) -> None:
        """Set entries of the matrix, which is passed to HiGHS anew with the next solve.

        Parameters
        ----------
        entries
            Where they are among the entries of the matrix, as `SparseMatrix.entries` returns; those
            of appended rows follow.
        values
            One for each.
        """
        self._matrix.value[entries] = values
        self._is_current = False

    def append_rows(
        self, matrix: SparseMatrix, row_lower: npt.ArrayLike, row_upper: npt.ArrayLike
    ) -> None:
        """Add rows below the others; the basis goes on with their slacks.

        Parameters
        ----------
        matrix
            (k, n) the rows.
        row_lower, row_upper
            One for each, or one for all.
        """
        n, k = len(matrix.value), matrix.n_rows
        lower, upper = (np.full(k, x, dtype=np.float64) for x in (row_lower, row_upper))
        self._matrix = SparseMatrix.stacked([self._matrix, matrix])
        self._row_lower = np.concatenate([self._row_lower, lower])
        self._row_upper = np.concatenate([self._row_upper, upper])
        start, column = (x.astype(np.int32) for x in (matrix.start, matrix.column))
        self._highs.addRows(k, lower, upper, n, start, column, matrix.value)

    def keep_rows(self, n_rows: int) -> None:
        """Drop all rows but the first ones.

        Parameters
        ----------
        n_rows
            How many to keep.
        """
        end = self._matrix.start[n_rows]
        self._matrix = SparseMatrix(
            self._matrix.start[: n_rows + 1],
            self._matrix.column[:end],
            self._matrix.value[:end],
            self.n_columns,
        )
        self._row_lower, self._row_upper = self._row_lower[:n_rows], self._row_upper[:n_rows]
        self._is_current = False

    def solve(
        self,
        basis: Basis | None = None,
        *,
        max_time: float | None = None,
        cutoff: float | None = None,
    ) -> LinearSolution:
        """Solve the program as it is now.

        Parameters
        ----------
        basis
            Where to start, such as that of a similar program's solution, which may have had fewer
            rows; None for where the last solve ended.
        max_time
            Limit of the seconds, or None.
        cutoff
            Values of at most this do not matter: the solve may end once it knows that the optimum
            is one of them. The bound can be above it by rounding.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl-C comes. The program can be solved again.
        """
        highs = self._highs
        basis = basis or (None if self._is_current else self._last)
        if not self._is_current:
            self._pass()
        if basis is not None:
            highs.setBasis(basis.for_highs(self.n_rows))
        limit = np.inf if max_time is None else highs.getRunTime() + max_time
        highs.setOptionValue("time_limit", limit)
        highs.setOptionValue("objective_bound", np.inf if cutoff is None else -cutoff)
        status = self._run()
        if status == "failed":  # from a basis that HiGHS cannot repair
            highs.clearSolver()
            status = self._run()
        return self._solution(status)

    def _pass(self) -> None:
        """Pass the program to HiGHS, which forgets its basis."""
        n, m, matrix = self.n_columns, self.n_rows, self._matrix
        highspy = highspy_module()
        self._highs.passModel(
            n,
            m,
            len(matrix.value),
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize),  # HiGHS heeds a cutoff only then
            0.0,
            -self._objective,
            self._lower,
            self._upper,
            self._row_lower,
            self._row_upper,
            matrix.start.astype(np.int32),
            matrix.column.astype(np.int32),
            matrix.value,
            np.zeros(n, dtype=np.int32),
        )
        self._is_current = True
        self._last: Basis | None = None

    def _run(self) -> Status:
        """Solve, and return how that ended."""
        if len(self._matrix.value) < LARGE:
            self._highs.run()
        else:
            self._run_in_thread()
        return _STATUSES.get(self._highs.getModelStatus().name, "failed")

    def _run_in_thread(self) -> None:
        highs, interrupted = self._highs, False
        highs.HandleUserInterrupt = True
        highs.startSolve()
        while True:
            try:
                if highs.wait(LOOK)[0]:
                    break
            except KeyboardInterrupt:
                interrupted = True
                highs.cancelSolve()
        if interrupted:
            # this one would be interrupted again in every solve
            self._highs, self._is_current = _silent(self._options), False
            raise KeyboardInterrupt

    def _solution(self, status: Status) -> LinearSolution:
        highs = self._highs
        solution, statuses = highs.getSolution(), highs.getBasis()
        x, y = np.array(solution.col_value), self._usable(-np.array(solution.row_dual))
        if len(x) != self.n_columns or not np.isfinite(x).all():  # after a failure
            x = np.clip(0.0, self._lower, self._upper)
        costs, bound = self._dual_bound(self._objective, y)
        if status == "infeasible":
            ray = highs.getDualRay()
            if ray[1] and self._proves_infeasible(np.array(ray[2])):
                bound = -np.inf
        self._last = Basis.from_highs(statuses, self.n_rows) if statuses.valid else None
        objective = -highs.getObjectiveValue()
        return LinearSolution(status, bound, objective, x, costs, y, self._last)

    def _usable(self, duals: npt.ArrayLike) -> FloatArray:
        """Return row duals that have finite bounds, zeros where HiGHS has none."""
        y: FloatArray = np.array(duals, dtype=np.float64)
        if len(y) != self.n_rows or not np.isfinite(y).all():
            return np.zeros(self.n_rows)
        y[(y > 0.0) & (self._row_upper == np.inf)] = 0.0
        y[(y < 0.0) & (self._row_lower == -np.inf)] = 0.0
        return y

    def _proves_infeasible(self, ray: FloatArray) -> bool:
        """Return whether the objective zero is below zero for every x: then there is no x.

        Both signs of the ray are tried.
        """
        nothing = np.zeros(self.n_columns)
        return any(self._dual_bound(nothing, self._usable(y))[1] < 0.0 for y in (ray, -ray))

    def _dual_bound(self, objective: FloatArray, y: FloatArray) -> tuple[FloatArray, float]:
        """Return the reduced costs, and what no x exceeds, by weak duality, whatever y is."""
        matrix, n = self._matrix, len(objective)
        weighted = matrix.value * y[matrix.row]
        costs = objective - sums_at(matrix.column, weighted, n)
        sizes = np.abs(objective) + sums_at(matrix.column, np.abs(weighted), n)
        sides = np.where(y > 0.0, self._row_upper, self._row_lower)
        by_rows = np.multiply(y, sides, out=np.zeros_like(y), where=y != 0.0)
        by_columns = np.maximum(costs * self._lower, costs * self._upper)
        widest = np.maximum(np.abs(self._lower), np.abs(self._upper))
        # no sum has more terms than this, each is rounded once for each of them at most
        rounding = UNIT * (n + 2 * len(y) + 4) * (sizes @ widest + np.abs(by_rows).sum())
        return costs, float(by_columns.sum() + by_rows.sum() + rounding)


_STATUSES: dict[str, Status] = {
    "kOptimal": "optimal",
    "kInfeasible": "infeasible",
    "kUnboundedOrInfeasible": "infeasible",
    "kObjectiveBound": "below",
    "kTimeLimit": "stopped",
}
"""By HiGHS's names. No program is unbounded, since all columns are bounded."""


def _broadcast(
    numbers: npt.ArrayLike, *values: npt.ArrayLike
) -> tuple[npt.NDArray[np.int32], list[FloatArray]]:
    """Return numbers of columns or rows, and values for each, as HiGHS takes them."""
    index = np.array(numbers, dtype=np.int32, ndmin=1)
    return index, [np.full(len(index), x, dtype=np.float64) for x in values]


def highspy_module() -> Any:
    """Return the module of HiGHS's package.

    Raises
    ------
    ImportError
        If highspy is not installed.
    """
    try:
        import highspy
    except ImportError as error:
        raise ImportError(
            "Linear programs need highspy. Install it with: pip install 'lpsmap-search[programs]'"
        ) from error
    return highspy


def _silent(options: Mapping[str, Option]) -> Any:
    """Return HiGHS, which otherwise prints its version as soon as it is made with callbacks."""
    highspy = highspy_module()

    class Silent(highspy.Highs):  # type: ignore[misc,name-defined]
        def enableCallbacks(self) -> None:  # noqa: N802
            self.silent()
            super().enableCallbacks()

    highs = Silent()
    highs.silent()
    for name, value in options.items():
        highs.setOptionValue(name, value)
    return highs
