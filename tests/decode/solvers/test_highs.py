"""HiGHS: its proofs against all assignments, and its process under threads and time limits."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpsmap import AtMostOne, Budget, FactorGraph, Knapsack, Pair, Xor
from lpsmap_core import ConvergenceWarning
from lpsmap_decode import Answer, Assignment, HighsSolver, Program, SolverLimits, solve_many
from lpsmap_decode.solvers import highs_process
from lpsmap_decode.solvers.row_scaling import MARGIN, meets_rows, scaled_rows

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("highspy") is None,
    reason="highspy is not installed: the extra [highs]",
)

PROVED = 1e-6
"""The gap of an answer of a solver."""

ROUNDING = 1e-14

LINUX = Path("/proc/self/stat").exists()


def best(graph: FactorGraph, **options: Any) -> Assignment:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = graph.solve_map(exact=True, threads=1, **options)
    assert isinstance(found, Assignment)
    return found


def binary_vectors(n: int) -> Any:
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(float)


def program(scores: Any, costs: Any, low: Any, high: Any) -> Program:
    """Return a program of rows of costs."""
    costs = np.atleast_2d(costs)
    row, column = np.nonzero(costs)
    n = costs.shape[1]
    return Program(
        variables=np.arange(n),
        scores=np.asarray(scores, dtype=float),
        upper=np.ones(n),
        n_auxiliary=0,
        row=row,
        column=column,
        coefficient=costs[row, column].astype(float),
        low=np.broadcast_to(np.asarray(low, dtype=float), len(costs)),
        high=np.broadcast_to(np.asarray(high, dtype=float), len(costs)),
        masks=np.zeros(n),
    )


# ------------------------------------------------------------------------------- proofs


@pytest.mark.parametrize("solver", ["highs", "auto"])
def test_large_costs_have_no_false_proof(solver: str) -> None:
    costs = np.array([92195491.0, 44515971, 97890777, 53416383, 12993522, 66650548])
    graph = FactorGraph()
    u = graph.variable_from(costs / costs.max())
    graph.add(Knapsack(u, costs, 314992004.0))
    tried = binary_vectors(6)
    truth = float((tried @ costs)[tried @ costs <= 314992004.0].max() / costs.max())
    assert truth == pytest.approx(3.2102, abs=1e-4)
    found = best(graph, solver=solver)
    assert found.ok
    assert found.total == pytest.approx(truth, rel=1e-12)
    assert found.bound[0] >= truth - 1e-12


def draw(rng: np.random.Generator) -> Program:
    """Return a program of one to three rows of costs of any size; some rows are equations."""
    n, m = int(rng.integers(4, 13)), int(rng.integers(1, 4))
    costs = rng.integers(1, 10 ** int(rng.integers(2, 15)), size=(m, n)).astype(float)
    kind = rng.choice(["integers", "numbers", "large and small"])
    if kind == "numbers":
        costs *= rng.uniform(0.1, 1.0, size=(m, n))
    if kind == "large and small":
        costs = np.where(rng.random((m, n)) < 0.5, costs, rng.integers(1, 10, size=(m, n)))
    high = costs.sum(axis=1) * rng.uniform(0.2, 0.8, size=m)
    if rng.random() < 0.4:  # an assignment spends the budget
        high = (costs * rng.integers(0, 2, size=(m, n))).sum(axis=1)
    low = np.full(m, -np.inf)
    if rng.random() < 0.15:
        low[0] = high[0] = costs[0] @ rng.integers(0, 2, size=n)
    scores = 3.0 * costs[0] / costs[0].sum() * (1.0 + rng.choice([0.0, 1e-3]) * rng.normal(size=n))
    if rng.random() < 1.0 / 3.0:
        scores = rng.normal(size=n) + 0.5
    return program(scores, costs, low, high)


def test_no_bound_of_large_rows_is_below_the_best_of_all() -> None:
    solver, n_proved = HighsSolver(), 0
    for seed in range(400):
        drawn = draw(np.random.default_rng(seed))
        n = len(drawn.scores)
        costs = np.zeros((len(drawn.low), n))
        costs[drawn.row, drawn.column] = drawn.coefficient
        tried = binary_vectors(n)
        total, scores = tried @ costs.T, tried @ drawn.scores
        rounding = ROUNDING * costs.sum(axis=1)
        surely = (total <= drawn.high - rounding) & (total >= drawn.low + rounding)
        perhaps = (total <= drawn.high + rounding) & (total >= drawn.low - rounding)
        exact = np.rint(costs) == costs  # sums of integers have no rounding errors
        feasible = np.where(exact.all(axis=1), perhaps, surely).all(axis=1)
        truth = float(scores[feasible].max(initial=-np.inf))
        answer = solver.solve(drawn, SolverLimits(1e-8, None, 1))
        assert answer.bound >= truth - 1e-9 * (1.0 + np.abs(drawn.scores).sum()), seed
        if answer.values is None:
            continue
        (found,) = np.flatnonzero((tried == np.rint(answer.values)).all(axis=1))
        assert perhaps[found].all(), seed
        gap = PROVED * max(1.0, abs(scores[found]))
        if answer.bound <= scores[found] + gap:
            n_proved += 1
            assert scores[found] >= truth - gap, seed
    assert n_proved > 300


def test_rows_of_weights_are_scaled_and_widened() -> None:
    given = program([1.0, 1.0, 1.0], [[3e8, 1e8, 2.0], [1.0, 1.0, 2.0]], [4e8, -np.inf], [4e8, 2.0])
    wide = scaled_rows(given, MARGIN)
    first = wide.row == 0
    assert 0.5 <= wide.coefficient[first].max() < 1.0
    assert wide.column[first].tolist() == [0, 1]  # HiGHS would drop the third
    scale = wide.coefficient[0] / 3e8
    assert np.log2(scale) == np.rint(np.log2(scale))
    dropped = 2.0 * scale
    assert wide.high[0] == 4e8 * scale + MARGIN + dropped
    assert wide.low[0] == 4e8 * scale - MARGIN - dropped
    assert wide.coefficient[~first].tolist() == [1.0, 1.0, 2.0]
    assert wide.high[1] == 2.0
    narrow = scaled_rows(given, -MARGIN)
    assert narrow.high[0] == 4e8 * scale - MARGIN - dropped
    assert meets_rows(given, np.array([1.0, 1.0, 0.0]))
    assert not meets_rows(given, np.array([1.0, 1.0, 1.0]))


def test_no_row_has_too_large_or_small_numbers() -> None:
    """Neither sides nor coefficients overflow, and a side beyond all sums is no bound."""
    costs = [[1e300, 2e300], [1e-310, 3e-310], [1e-300, 1e-300]]
    given = program([1.0, 2.0], costs, -np.inf, [2e300, 3e-310, 1e300])
    wide = scaled_rows(given, MARGIN)
    assert np.isfinite(wide.coefficient).all()
    assert (np.abs(wide.coefficient) >= 0.25).all()
    assert wide.high[2] == np.inf
    answer = HighsSolver().solve(given, SolverLimits(1e-8, None, 1))
    assert answer.values is not None
    np.testing.assert_array_equal(np.rint(answer.values), [0.0, 1.0])


def test_a_near_miss_leaves_a_feasible_answer() -> None:
    """The best assignment of the wider program spends one unit more than a budget of 10^12."""
    costs = np.array([6e11, 4e11 + 1, 3e11])
    given = program([3.0, 2.0, 1.0], costs, -np.inf, 1e12)
    answer = HighsSolver().solve(given, SolverLimits(1e-8, None, 1))
    assert answer.values is not None
    assert np.rint(answer.values).tolist() == [1.0, 0.0, 1.0]
    assert answer.bound >= 4.0


# ---------------------------------------------------------------------------- a process


def hard(seed: int, n: int = 60) -> FactorGraph:
    """Return a graph that takes HiGHS minutes."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=n))
    i, j = np.triu_indices(n, 1)
    graph.add(Pair(u[i], u[j], rng.normal(size=len(i))))
    graph.add(Budget(u, n // 3))
    return graph


def easy(seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(4, 4)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    graph.add(Knapsack(u.reshape(-1), rng.uniform(size=16), 2.0))
    return graph


@pytest.mark.parametrize("solver", ["highs", "auto"])
def test_threads_solve_side_by_side(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lpsmap_decode import exact_decoder

    monkeypatch.setattr(exact_decoder, "FIRST_NODES", 1)
    problems = [hard(seed, 13) for seed in range(12)]
    with ThreadPoolExecutor(2) as executor:
        outcomes = list(solve_many(problems, executor, task="map", solver=solver))
    for seed, outcome in enumerate(outcomes):
        assert outcome.error is None
        assert outcome.ok
        assert outcome.score.sum() == pytest.approx(best(hard(seed, 13), solver="lpsmap").total)


def children(parent: int) -> list[str]:
    """Return the numbers of the processes of HiGHS that a process has."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            ours = b"highs_process" in (folder / "cmdline").read_bytes()
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if ours and int(status[1]) == parent:
                found.append(folder.name)
    return found


def test_the_time_limit_leaves_the_best_so_far_and_no_process() -> None:
    threads = set(threading.enumerate())
    for _ in range(2):  # the second call is not affected by the first
        begin = time.monotonic()
        found = best(hard(0, 120), solver="highs", max_time=1.5)
        assert time.monotonic() - begin < 10.0
        assert found.found.all()
        assert np.isfinite(found.bound).all()
    assert best(easy(0), solver="highs").ok
    assert set(threading.enumerate()) <= threads
    assert children(os.getpid()) == []


DEAF = """
import pickle, sys, time
import numpy as np
paths, reports = pickle.load(sys.stdin.buffer), sys.stdout.buffer
def report(*content):
    pickle.dump(content, reports)
    reports.flush()
report("ready")
request = pickle.load(sys.stdin.buffer)
report("running", np.eye(len(request["scores"]))[0], 3.0, 7)
{end}
"""


def answer_of(end: str, folder: Path, patch: pytest.MonkeyPatch, seconds: float | None) -> Answer:
    """Return the answer by a process that reports an assignment, then does something else."""
    file = folder / "process.py"
    file.write_text(DEAF.format(end=end))
    patch.setattr(highs_process, "__file__", str(file))
    given = program([2.0, 1.0, 1.0], [[1.0, 1.0, 1.0]], -np.inf, 2.0)
    return HighsSolver().solve(given, SolverLimits(1e-8, seconds, 1))


def test_a_process_that_ignores_its_time_limit_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = time.monotonic()
    answer = answer_of("time.sleep(60.0)", tmp_path, monkeypatch, 1.0)
    assert time.monotonic() - begin < 10.0
    assert answer.values is not None
    assert answer.values.tolist() == [1.0, 0.0, 0.0]
    assert answer.n_nodes == 7
    assert answer.bound < 3.0 + 1e-12  # in units of scores
    assert not answer.interrupted


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("import os; os._exit(9)", "EOFError: exit code 9"),
        ("report('failed', 'MemoryError: none left')", "MemoryError: none left"),
        ("reports.write(b'no pickle'); reports.flush()", "UnpicklingError"),
    ],
)
def test_a_process_that_fails_leaves_the_best_so_far(
    end: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match=rf"solver 'highs' has not finished.*{words}"):
        answer = answer_of(end, tmp_path, monkeypatch, None)
    assert answer.values is not None
    assert answer.values.tolist() == [1.0, 0.0, 0.0]


def test_a_process_that_cannot_start_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.spawn, "get_executable", lambda: "/no/such/python")
    with pytest.warns(UserWarning, match="solver 'highs' has not finished: its process failed"):
        found = best(easy(0), solver="highs")
    assert found.solver == "highs"
    assert found.found.all()


def _in_daemon(queue: Any) -> None:
    queue.put(best(easy(1), solver="highs").total)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_daemons_call_it_too(method: str) -> None:
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=_in_daemon, args=(queue,), daemon=True)
    process.start()
    assert queue.get() == pytest.approx(best(easy(1), solver="highs").total)
    process.join()
    assert process.exitcode == 0


SOLVES = f"""
import sys, warnings
sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
warnings.simplefilter("ignore")
from test_highs import best, hard
best(hard(0, 12), solver="highs")
print("solving", flush=True)
found = best(hard(0, 120), solver="highs", max_time={{seconds}})
print(found.found.all(), found.interrupted, flush=True)
"""


def solving(seconds: float) -> subprocess.Popen[str]:
    """Start a Python program that solves, and wait until it does."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code + SOLVES.format(seconds=seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "solving\n"
    until = time.monotonic() + 60.0
    while LINUX and not children(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(1.0)
    return process


def test_a_program_ends_well_after_its_time_limit() -> None:
    process = solving(2.5)
    printed, errors = process.communicate()
    assert (process.returncode, printed, errors) == (0, "True False\n", "")


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_it_with_the_best_so_far() -> None:
    process = solving(60.0)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60.0)
    assert (process.returncode, printed, errors) == (0, "True True\n", "")
    assert time.monotonic() - begin < 10.0


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_no_process_outlives_one_that_is_killed() -> None:
    process = solving(60.0)
    (child,) = children(process.pid)
    process.kill()
    process.communicate()
    until = time.monotonic() + 20.0
    while Path(f"/proc/{child}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
