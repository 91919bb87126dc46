"""Linear programs by the simplex algorithm of HiGHS, with safe bounds.

HiGHS (Huangfu & Hall 2018) returns points that are optimal up to tolerances, so the reported value
may be below the optimum. A bound for pruning must not be. It is computed from the row duals y by
weak duality: for every x of the program ``maximise <c, x>``,

    <c, x> = <c - A'y, x> + <y, A x> <= sum_j max(d_j l_j, d_j u_j) + sum_i max(y_i L_i, y_i U_i),

where ``d = c - A'y``, ``l <= x <= u`` and ``L <= A x <= U``. This holds for any y. The rounding
error of the right-hand side is bounded and added. All columns need finite bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.sparse_matrix import SparseMatrix, sums_at

Status = Literal["optimal", "infeasible", "below", "stopped", "failed"]

Option = float | int | str | bool
"""A value of an option of HiGHS."""

BASIC = 1
"""The status of a basic column or row in HiGHS."""

LARGE = 20_000
"""Programs with at least this many entries are solved in a thread, so that Ctrl-C ends them."""

POLL = 0.05
"""Seconds between two checks for Ctrl-C."""

UNIT = float(np.finfo(np.float64).eps)
"""Maximum relative rounding error of an operation."""


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Maximise ``<objective, x>`` subject to bounds on columns and rows.

    Raises
    ------
    ValueError
        If shapes do not match, a bound of a column is infinite, or a number is NaN.
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
                    "finite bounds, possibly wide: the bound on the optimum needs them."
                )
        if np.isnan(self.row_lower).any() or np.isnan(self.row_upper).any():
            raise ValueError("row_lower, row_upper: got NaN; expected numbers or infinity.")


class Basis:
    """A basis: the statuses of columns and rows. It can be pickled.

    Parameters
    ----------
    columns, rows
        The statuses, as numbered by HiGHS: 0 at the lower bound, 1 basic, 2 at the upper bound.
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
        """Wrap a basis of HiGHS without reading its statuses, which is slow."""
        copy = cls.__new__(cls)
        copy._highs, copy._n_rows = basis, n_rows
        return copy

    def statuses(self) -> tuple[bytes, bytes]:
        """Return the statuses of the columns and of the rows."""
        columns, rows = self._highs.col_status, self._highs.row_status
        return bytes(map(int, columns)), bytes(map(int, rows))

    def __reduce__(self) -> tuple[Any, ...]:
        return Basis, self.statuses()

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the statuses as arrays, for files."""
        columns, rows = (np.frombuffer(x, dtype=np.uint8) for x in self.statuses())
        return {"columns": columns, "rows": rows}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Basis:
        """Return the basis of statuses as arrays."""
        return cls(arrays["columns"].tobytes(), arrays["rows"].tobytes())

    def for_highs(self, n_rows: int) -> Any:
        """Return the basis for a program that may now have another number of rows.

        Slacks of new rows are basic. HiGHS repairs a basis with missing rows.
        """
        if n_rows == self._n_rows:
            return self._highs
        columns, rows = self.statuses()
        new = bytes([BASIC]) * max(n_rows - self._n_rows, 0)
        basis = Basis(columns, rows[:n_rows] + new)._highs
        basis.alien = n_rows < self._n_rows
        return basis


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """The result of a solve."""

    status: Status
    """``"optimal"``; ``"infeasible"``; ``"below"`` the cutoff; ``"stopped"`` by the time limit;
    ``"failed"`` numerically. The bound is always valid."""
    bound: float
    """A safe upper bound on the objective, despite tolerances and rounding; -inf if a dual ray
    proves infeasibility."""
    objective: float
    """The objective reported by HiGHS. It is not a safe bound."""
    x: FloatArray
    """(n,) the point, feasible up to the tolerances of HiGHS if the status is ``"optimal"``."""
    row_duals: FloatArray
    """(m,) the duals y: the derivatives of the optimum with respect to row bounds."""
    basis: Basis | None
    """The basis for a warm start; None if HiGHS has none."""


class SimplexSolver:
    """A linear program that is solved repeatedly with small changes.

    Changes of the objective and new rows are passed to HiGHS immediately; changes of coefficients
    with the next solve.

    Parameters
    ----------
    program
        The initial program.
    options
        Options of HiGHS, such as ``{"simplex_strategy": 4}``.

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
        """Number of rows, including appended ones."""
        return self._matrix.n_rows

    def change_objective(self, columns: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Set coefficients of the objective.

        Parameters
        ----------
        columns
            Indices of the columns.
        values
            One for each, or one for all.
        """
        index = np.array(columns, dtype=np.int32, ndmin=1)
        self._objective[index] = values
        self._highs.changeColsCost(len(index), index, -self._objective[index])

    def change_coefficients(self, entries: IntArray, values: npt.ArrayLike) -> None:
        """Set entries of the matrix; it is passed to HiGHS again in the next solve.

        Parameters
        ----------
        entries
            Positions among the entries of the matrix, as returned by `SparseMatrix.entries`; those
            of appended rows follow.
        values
            One for each.
        """
        self._matrix.value[entries] = values
        self._is_current = False

    def append_rows(
        self, matrix: SparseMatrix, row_lower: npt.ArrayLike, row_upper: npt.ArrayLike
    ) -> None:
        """Append rows; the basis is extended by their slacks.

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

    def solve(
        self,
        basis: Basis | None = None,
        *,
        max_time: float | None = None,
        cutoff: float | None = None,
    ) -> LinearSolution:
        """Solve the current program.

        Parameters
        ----------
        basis
            The initial basis, such as that of a similar program, which may have had fewer rows;
            None for the final basis of the last solve.
        max_time
            Time limit in seconds, or None.
        cutoff
            The solve may stop once it knows that the optimum is at most this. The bound can be
            slightly above it because of rounding.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C. The program can be solved again.
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
        if status == "failed":  # HiGHS could not repair the basis
            highs.clearSolver()
            status = self._run()
        return self._solution(status)

    def _pass(self) -> None:
        """Pass the program to HiGHS, which resets its basis."""
        n, m, matrix = self.n_columns, self.n_rows, self._matrix
        highspy = highspy_module()
        self._highs.passModel(
            n,
            m,
            len(matrix.value),
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize),  # HiGHS supports a cutoff only for minimisation
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
        """Solve, and return the status."""
        if len(self._matrix.value) < LARGE:
            self._highs.run()
        else:
            self._run_in_thread()
        return _STATUSES.get(self._highs.getModelStatus().name, "failed")

    def _run_in_thread(self) -> None:
        """Solve in a thread that ends with this call.

        The locks of `startSolve` of highspy are shared by all instances in a process.
        """
        highs = self._highs
        highs.HandleUserInterrupt = True
        with ThreadPoolExecutor(1) as pool:  # the block ends after the thread's work
            try:
                solve = pool.submit(highs.run)
                while not wait([solve], POLL).done:
                    pass
                solve.result()  # raises what `run` raised
            except BaseException:
                highs.cancelSolve()
                # this instance would be interrupted in every further solve
                self._highs, self._is_current = _silent(self._options), False
                raise

    def _solution(self, status: Status) -> LinearSolution:
        highs = self._highs
        solution, statuses = highs.getSolution(), highs.getBasis()
        x, y = np.array(solution.col_value), self._usable(-np.array(solution.row_dual))
        if len(x) != self.n_columns or not np.isfinite(x).all():  # after a failure
            x = np.clip(0.0, self._lower, self._upper)
        bound = self._dual_bound(self._objective, y)
        if status == "infeasible":
            ray = highs.getDualRay()
            if ray[1] and self._proves_infeasible(np.array(ray[2])):
                bound = -np.inf
        self._last = Basis.from_highs(statuses, self.n_rows) if statuses.valid else None
        objective = -highs.getObjectiveValue()
        return LinearSolution(status, bound, objective, x, y, self._last)

    def _usable(self, duals: npt.ArrayLike) -> FloatArray:
        """Return row duals whose bounds are finite, zeros if HiGHS has none."""
        y: FloatArray = np.array(duals, dtype=np.float64)
        if len(y) != self.n_rows or not np.isfinite(y).all():
            return np.zeros(self.n_rows)
        y[(y > 0.0) & (self._row_upper == np.inf)] = 0.0
        y[(y < 0.0) & (self._row_lower == -np.inf)] = 0.0
        return y

    def _proves_infeasible(self, ray: FloatArray) -> bool:
        """Return whether a dual ray proves that the program is infeasible.

        Both signs of the ray are tried: the dual bound of the zero objective must be negative.
        """
        nothing = np.zeros(self.n_columns)
        return any(self._dual_bound(nothing, self._usable(y)) < 0.0 for y in (ray, -ray))

    def _dual_bound(self, objective: FloatArray, y: FloatArray) -> float:
        """Return a safe bound by weak duality for any y."""
        matrix, n = self._matrix, len(objective)
        weighted = matrix.value * y[matrix.row]
        costs = objective - sums_at(matrix.column, weighted, n)
        sizes = np.abs(objective) + sums_at(matrix.column, np.abs(weighted), n)
        sides = np.where(y > 0.0, self._row_upper, self._row_lower)
        by_rows = np.multiply(y, sides, out=np.zeros_like(y), where=y != 0.0)
        by_columns = np.maximum(costs * self._lower, costs * self._upper)
        widest = np.maximum(np.abs(self._lower), np.abs(self._upper))
        # the maximum number of terms of a sum, each of which is rounded at most this often
        rounding = UNIT * (n + 2 * len(y) + 4) * (sizes @ widest + np.abs(by_rows).sum())
        return float(by_columns.sum() + by_rows.sum() + rounding)


_STATUSES: dict[str, Status] = {
    "kOptimal": "optimal",
    "kInfeasible": "infeasible",
    "kUnboundedOrInfeasible": "infeasible",
    "kObjectiveBound": "below",
    "kTimeLimit": "stopped",
}
"""Statuses by the names of HiGHS. No program is unbounded, since all columns are bounded."""


def highspy_module() -> Any:
    """Import and return highspy.

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
    """Return a HiGHS instance that does not print its banner when callbacks are enabled."""
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
