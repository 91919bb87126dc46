"""Linear programs, against enumeration of their vertices."""

from __future__ import annotations

import itertools
import pickle
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from lpsmap_search.linear_programs import Basis, LinearProgram, SimplexSolver
from lpsmap_search.sparse_matrix import SparseMatrix
from programs import dense

pytest.importorskip("highspy")


def optimum(program: LinearProgram) -> float:
    """Return the best value at points where n constraints are tight; -inf if none is feasible."""
    n = len(program.objective)
    a = np.concatenate([np.eye(n), dense(program.matrix)])
    low = np.concatenate([program.lower, program.row_lower])
    high = np.concatenate([program.upper, program.row_upper])
    sides = [(row, b) for row in range(len(a)) for b in {low[row], high[row]} if np.isfinite(b)]
    best = -np.inf
    for chosen in itertools.combinations(sides, n):
        rows, right = [row for row, _ in chosen], np.array([b for _, b in chosen])
        if len(set(rows)) == n and abs(np.linalg.det(a[rows])) > 1e-9:
            x = np.linalg.solve(a[rows], right)
            values = a @ x
            if (values >= low - 1e-9).all() and (values <= high + 1e-9).all():
                best = max(best, float(program.objective @ x))
    return best


def drawn_program(rng: np.random.Generator, n: int = 3, m: int = 3) -> LinearProgram:
    lower, row_lower = -rng.random(n), np.where(rng.random(m) < 0.4, -np.inf, rng.random(m) - 0.5)
    row_upper = np.where(rng.random(m) < 0.4, np.inf, rng.random(m) + 0.5)
    return LinearProgram(
        rng.standard_normal(n),
        lower,
        lower + 2.0 * rng.random(n),
        drawn_rows(rng, n, m),
        row_lower,
        row_upper,
    )


def drawn_rows(rng: np.random.Generator, n: int, m: int) -> SparseMatrix:
    row, column = (x.reshape(-1) for x in np.indices((m, n)))
    return SparseMatrix.from_entries(row, column, rng.integers(-3, 4, m * n), (m, n))


def test_solutions_are_optimal(capfd: pytest.CaptureFixture[str]) -> None:
    rng, infeasible = np.random.default_rng(0), 0
    for _ in range(60):
        program = drawn_program(rng)
        best, found = optimum(program), SimplexSolver(program).solve()
        if best == -np.inf:
            infeasible += 1
            assert (found.status, found.bound) == ("infeasible", -np.inf)
            continue
        assert found.status == "optimal"
        assert best - 1e-13 <= found.bound <= best + 1e-11
        assert found.objective == pytest.approx(best, abs=1e-9)
        assert program.objective @ found.x == pytest.approx(best, abs=1e-9)
        rows = program.matrix @ found.x
        assert (rows >= program.row_lower - 1e-9).all() and (rows <= program.row_upper + 1e-9).all()
        reduced_costs = program.objective - dense(program.matrix).T @ found.row_duals
        # complementary slackness: what has a price is at a bound
        inside = (found.x > program.lower + 1e-7) & (found.x < program.upper - 1e-7)
        assert reduced_costs[inside] == pytest.approx(0.0, abs=1e-9)
    assert 3 <= infeasible <= 40
    assert capfd.readouterr() == ("", "")


def test_bounds_hold_where_the_solver_stops_early() -> None:
    """With coarse tolerances HiGHS takes worse points for optimal; the bound is not below it."""
    rng, worse = np.random.default_rng(1), 0
    for _ in range(60):
        program = drawn_program(rng)
        best = optimum(program)
        if best > -np.inf:
            found = SimplexSolver(program, {"dual_feasibility_tolerance": 0.5}).solve()
            worse += found.objective < best - 1e-6
            assert found.bound >= best - 1e-13
    assert worse >= 3


def test_changes_are_as_a_new_program() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        begin, drawn, everything = drawn_program(rng), drawn_program(rng), np.arange(3)
        now = replace(begin, objective=drawn.objective, matrix=drawn.matrix)
        kept = begin.matrix.value.copy()
        old = SimplexSolver(begin).solve().basis
        solver = SimplexSolver(begin)
        solver.solve()
        solver.change_objective(everything, now.objective)
        check(solver, replace(now, matrix=begin.matrix))
        entries = begin.matrix.entries(*np.indices((3, 3)).reshape(2, -1))
        solver.change_coefficients(entries, now.matrix.value)
        check(solver, now)
        rows = drawn_rows(rng, 3, 2)
        solver.append_rows(rows, -np.inf, 0.5)
        more = replace(
            now,
            matrix=SparseMatrix.stacked([now.matrix, rows]),
            row_lower=np.append(now.row_lower, [-np.inf] * 2),
            row_upper=np.append(now.row_upper, [0.5] * 2),
        )
        assert (solver.n_rows, solver.n_columns) == (5, 3)
        check(solver, more)
        longer = solver.solve().basis
        check(solver, more, old)
        check(SimplexSolver(now), now, longer)
        assert (begin.matrix.value == kept).all()


def check(solver: SimplexSolver, program: LinearProgram, basis: Basis | None = None) -> None:
    best, found = optimum(program), solver.solve(basis)
    assert found.status == ("infeasible" if best == -np.inf else "optimal")
    assert found.bound == pytest.approx(best, abs=1e-9)


def larger_program() -> LinearProgram:
    rng, n, m = np.random.default_rng(3), 30, 20
    row, column = np.indices((m, n))
    matrix = SparseMatrix.from_entries(row, column, rng.integers(0, 4, (m, n)), (m, n))
    return LinearProgram(
        rng.random(n), np.zeros(n), np.ones(n), matrix, np.zeros(m), np.full(m, 8.0)
    )


def test_a_basis_is_where_the_next_solve_starts() -> None:
    program = larger_program()
    limited = {"simplex_iteration_limit": 0}
    first = SimplexSolver(program).solve()
    assert first.basis is not None
    assert SimplexSolver(program, limited).solve().status == "failed"
    for basis in (first.basis, pickle.loads(pickle.dumps(first.basis))):
        again = SimplexSolver(program, limited).solve(basis)
        assert again.status == "optimal"
        assert again.x == pytest.approx(first.x)
    # a bound is valid without a solution, too
    assert SimplexSolver(program, limited).solve().bound >= first.bound


def test_limits_leave_valid_bounds() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        program = drawn_program(rng)
        best = optimum(program)
        if best > -np.inf:
            found = SimplexSolver(program).solve(max_time=0.0)
            assert found.bound >= best - 1e-13
            for cutoff in (best - 0.1, best + 0.1):
                found = SimplexSolver(program).solve(cutoff=cutoff)
                assert found.bound >= best - 1e-13
                assert found.bound <= max(best, cutoff) + 1e-9


def test_a_solve_ends_below_its_cutoff() -> None:
    program = larger_program()
    best = SimplexSolver(program).solve().bound
    for cutoff in (best + 0.01, best + 0.1, best + 1.0):
        found = SimplexSolver(program).solve(cutoff=cutoff)
        assert found.status == "below"
        assert best <= found.bound <= cutoff + 1e-9
    assert SimplexSolver(program).solve(cutoff=best - 0.01).status == "optimal"


def test_large_programs_are_ended_by_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpsmap_search.linear_programs.LARGE", 0)
    solver, threads = SimplexSolver(larger_program()), threading.enumerate()
    started = []

    def interrupt(_: object) -> None:
        if not started:
            started.append(True)
            signal.raise_signal(signal.SIGINT)

    solver._highs.cbSimplexInterrupt += interrupt
    with pytest.raises(KeyboardInterrupt):
        solver.solve()
    assert started
    for thread in set(threading.enumerate()).difference(threads):
        thread.join(60.0)  # Ctrl-C while it was started
        assert not thread.is_alive()
    again = solver.solve()
    assert again.status == "optimal"
    monkeypatch.undo()
    assert again.bound == pytest.approx(SimplexSolver(larger_program()).solve().bound, abs=1e-9)


def test_large_programs_are_solved_while_another_thread_solves_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best = SimplexSolver(larger_program()).solve().bound
    monkeypatch.setattr("lpsmap_search.linear_programs.LARGE", 0)
    first, second = SimplexSolver(larger_program()), SimplexSolver(larger_program())
    is_running, may_end = threading.Event(), threading.Event()

    def pause(_: object) -> None:
        is_running.set()
        may_end.wait()

    first._highs.cbSimplexInterrupt += pause
    with ThreadPoolExecutor(1) as pool:
        paused = pool.submit(first.solve)
        try:
            assert is_running.wait(60.0)
            assert second.solve().bound == pytest.approx(best, abs=1e-9)
        finally:
            may_end.set()
        assert paused.result().bound == pytest.approx(best, abs=1e-9)


def test_matrices() -> None:
    matrix = SparseMatrix.from_entries([1, 0, 1, 1], [2, 1, 0, 2], [1.0, 2.0, 3.0, 4.0], (3, 4))
    full = np.array([[0.0, 2.0, 0.0, 0.0], [3.0, 0.0, 5.0, 0.0], [0.0] * 4])
    assert (dense(matrix) == full).all()
    x = np.arange(4.0)
    assert (matrix @ x == full @ x).all()
    assert (dense(SparseMatrix.stacked([matrix, matrix])) == np.concatenate([full, full])).all()
    assert matrix.value[matrix.entries([1, 0], [2, 1])].tolist() == [5.0, 2.0]
    with pytest.raises(ValueError, match="a place without an entry"):
        matrix.entries([0], [0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lower": np.zeros(2)}, r"lower: got shape \(2,\)"),
        ({"row_upper": np.zeros(4)}, r"row_upper: got shape \(4,\)"),
        ({"upper": np.full(3, np.inf)}, "upper: got NaN or infinity"),
        ({"row_lower": np.full(3, np.nan)}, "row_lower, row_upper: got NaN"),
        ({"matrix": SparseMatrix.from_entries([], [], [], (3, 2))}, "matrix: got 2 columns"),
    ],
)
def test_bad_programs_are_refused(change: dict[str, object], message: str) -> None:
    program = drawn_program(np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        LinearProgram(**(vars(program) | change))


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(ImportError, match=r"pip install 'lpsmap-search\[programs\]'"):
        SimplexSolver(drawn_program(np.random.default_rng(0)))
