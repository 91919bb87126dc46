"""When work has to end: limits of time, compiling, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import judges
import lpsmap_core
from lpsmap import Budget, Factor, FactorGraph, Pair, Sequence, Xor
from lpsmap_core import ConvergenceWarning, Status
from lpsmap_core.engine import faces, polish
from lpsmap_core.engine.selection import Selection
from lpsmap_core.engine.state import PartState
from lpsmap_core.plugins.registry import registered
from lpsmap_decode import Answer, MapSolver, SolverLimits, solve_many
from lpsmap_jit.deadlines import Deadline, compiling
from lpsmap_jit.interrupts import (
    Watch,
    interrupted,
    out_of_time,
    renew_deadline,
    thread_record,
)

FloatArray = npt.NDArray[np.float64]

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")


def test_a_deadline_is_its_own_or_that_of_the_whole() -> None:
    whole = Deadline(100.0)
    assert 99.0 < whole.left <= 100.0
    assert 0.0 < Deadline(50.0, whole).left <= 50.0
    assert 99.0 < Deadline(None, whole).left <= 100.0
    assert Deadline().left == np.inf
    assert Deadline(0.0).passed
    part = Deadline(50.0, whole)
    part.end()
    assert part.passed
    assert not whole.passed
    part = Deadline(50.0, whole)
    whole.end()
    assert part.passed


def test_compiling_takes_no_time() -> None:
    """Nor does it give any to who did not wait for it, and stretches in stretches count once."""
    deadline = Deadline(10.0)
    with compiling(), compiling():
        time.sleep(0.3)
        late = Deadline(10.0)
        time.sleep(0.1)
    assert 9.9 < deadline.left <= 10.0
    assert 9.9 < late.left <= 10.0


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("n_products", range(26, 42))
def test_polishes_that_time_ran_out_on(n_products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in a product, with one of the two factors; the constraints contradict."""
    multiply, left = faces.multiply_jacobians, n_products

    def end_midway(state: PartState, selection: Selection, *arrays: FloatArray) -> None:
        nonlocal left
        left -= 1
        if left:
            return multiply(state, selection, *arrays)
        views = state.views
        state.views = views[:1]
        multiply(state, selection._replace(rows=selection.rows[:1]), *arrays)
        deadline = thread_record().deadline
        assert deadline is not None
        deadline.end()
        renew_deadline()
        state.views = views[1:]
        multiply(state, selection._replace(rows=selection.rows[1:]), *arrays)
        state.views = views

    monkeypatch.setattr(polish, "multiply_jacobians", end_midway)
    monkeypatch.setattr(faces, "multiply_jacobians", end_midway)
    graph = FactorGraph()
    u = graph.variable_from(0.01 * np.random.default_rng(0).standard_normal((4, 25, 12))[2])
    factor = graph.add(Sequence(u, np.zeros((12, 12))))
    graph.add(Budget(u.reshape(-1), 24))
    solution = graph.solve(max_time=100.0)
    assert left <= 0
    assert solution.status == [Status.TIME_LIMIT]
    found = graph.structures(factor)
    mixed = np.tensordot(found.probabilities, found.variables, 1)
    off = 1e-9 + 2.0 * float(solution.primal_residual[0])  # u is over-relaxed
    assert off < 0.1
    np.testing.assert_allclose(mixed, u.value, rtol=0, atol=off)


@pytest.mark.parametrize("helps", [False, True])
def test_kernels_have_the_time_that_compiling_took(helps: bool) -> None:
    """Also those of a thread whose helper compiled."""

    def compile_something() -> None:
        with compiling():
            time.sleep(0.3)

    def help_out() -> None:
        with Watch(leader=leader):
            compile_something()

    with Watch(0.2), Watch(0.2):
        assert not interrupted()
        if helps:
            leader = thread_record()
            helper = threading.Thread(target=help_out)
            helper.start()
            helper.join()
        else:
            compile_something()
        assert not interrupted()
        assert not out_of_time()
        time.sleep(0.25)
        assert interrupted()
        assert out_of_time()


FIRST = """
import numpy as np
from lpsmap import Budget, DepTree, FactorGraph
graph, rng = FactorGraph(), np.random.default_rng(0)
u = graph.variable_from(rng.normal(size=(6, 6)))
graph.add(DepTree(u))
graph.add(Budget(u, 2, axis=1))
for verb in (lambda: graph.solve(max_time=2.0), lambda: graph.solve_map(exact=True, max_time=2.0)):
    print(verb().ok)
"""


@pytest.mark.compiled
@pytest.mark.slow
def test_the_first_solve_of_all_has_its_time(tmp_path: Path) -> None:
    """All that it needs is compiled in it, which takes a minute."""
    command = [sys.executable, "-W", "ignore", "-c", FIRST]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "LPSMAP_THREADS": "2"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "True"]


# ------------------------------------------------------------------ Ctrl-C


class Anything(Factor):
    """Allows everything; presses Ctrl-C at some calls of its oracle."""

    presses: tuple[int, ...] = ()
    calls = 0

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> tuple[int, ...]:
        Anything.calls += 1
        if Anything.calls in Anything.presses:
            os.kill(os.getpid(), signal.SIGINT)
        return tuple((eta_u > 0.0).astype(int).tolist())

    def vertex(self, y: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        return np.array(y, dtype=float), np.empty(0)


@pytest.fixture(autouse=True)
def nothing_pressed() -> Iterator[None]:
    Anything.presses, Anything.calls = (), 0
    # jobs that a script starts in the background ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


class Hard:
    """A graph whose relaxation is all halves, and what its best assignment scores."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        scores, first, second = rng.normal(size=10), *np.triu_indices(10, 1)
        pairs = rng.normal(size=len(first)) - 2.0
        self.graph = FactorGraph()
        self.u = self.graph.variable_from(scores)
        self.graph.add(Pair(self.u[first], self.u[second], pairs))
        self.graph.add(Anything(self.u))
        self.graph.add(Budget(self.u, 7))
        tried = judges.binary_vectors(10)
        tried = tried[tried.sum(axis=1) <= 7]
        self.best = float((tried @ scores + (tried[:, first] * tried[:, second]) @ pairs).max())


def presses_at(*calls: int) -> None:
    Anything.presses, Anything.calls = calls, 0


@POSIX
def test_whenever_ctrl_c_comes_there_is_the_best_so_far() -> None:
    """In the relaxation, in a search, and between them."""
    hard = Hard()
    assert hard.graph.solve_map(exact=True, threads=1).ok
    for call in np.unique(np.geomspace(1, 0.9 * Anything.calls, 12).astype(int)).tolist():
        presses_at(call)
        with pytest.warns(ConvergenceWarning, match="Ctrl-C ended the search"):
            found = hard.graph.solve_map(exact=True, threads=1)
        assert found.interrupted
        assert found.found.all(), call
        assert found.score[0] <= hard.best + 1e-9
        assert found.bound[0] >= hard.best - 1e-9
        assert np.isin(hard.u.value, (0.0, 1.0)).all()
    presses_at()
    found = hard.graph.solve_map(exact=True)
    assert found.ok
    assert not found.interrupted
    assert found.total == pytest.approx(hard.best)


@POSIX
def test_a_second_ctrl_c_raises() -> None:
    hard = Hard()
    presses_at(3, 4)
    with pytest.raises(KeyboardInterrupt):
        hard.graph.solve_map(exact=True, threads=1)
    presses_at(3)
    with pytest.raises(KeyboardInterrupt):  # nobody waits for a best so far
        hard.graph.solve_map(threads=1)


@POSIX
def test_ctrl_c_ends_decoding_and_the_k_best() -> None:
    hard = Hard()
    relaxed = hard.graph.solve(threads=1)
    presses_at(40)
    found = relaxed.decode()
    assert found.interrupted
    assert found.found.all()
    assert found.bound[0] >= hard.best - 1e-9
    presses_at(40)
    with pytest.warns(ConvergenceWarning, match="Ctrl-C ended the search"):
        ranked = hard.graph.k_best(2, threads=1)  # as far as they are found
    assert ranked[0].interrupted
    assert ranked[0].bound[0] >= hard.best - 1e-9
    assert not all(found.proved.all() for found in ranked)


@POSIX
def test_ctrl_c_ends_all_of_many() -> None:
    presses_at(5)
    with warnings.catch_warnings(), pytest.raises(KeyboardInterrupt):
        warnings.simplefilter("ignore", ConvergenceWarning)
        list(solve_many([Hard().graph, Hard().graph], task="map", threads=1))


@POSIX
def test_handlers_of_others_are_theirs() -> None:
    class Theirs(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise Theirs

    hard, before = Hard(), signal.signal(signal.SIGINT, handler)
    try:
        presses_at(3)
        with pytest.raises(Theirs):
            hard.graph.solve_map(exact=True, threads=1)
    finally:
        signal.signal(signal.SIGINT, before)


class Interrupted(MapSolver):
    """Is interrupted before it knows anything, and does not expect it."""

    name = "interrupted"

    def solve(self, program: Any, limits: SolverLimits) -> Answer:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10.0)
        raise AssertionError


@POSIX
def test_ctrl_c_ends_a_solver_that_does_not_expect_it() -> None:
    graph = FactorGraph()
    u = graph.variable_from([1.0, 1.0, 1.0])
    graph.add(Xor(u[:2]))
    graph.add(Xor(u[1:]))
    plugin = types.ModuleType("solvers_of_tests")
    plugin.lpsmap_api_version = 3  # type: ignore[attr-defined]
    plugin.lpsmap_solvers = lpsmap_core.hookimpl(lambda: [Interrupted])  # type: ignore[attr-defined]
    plugin.lpsmap_solvers.__name__ = "lpsmap_solvers"
    with registered(plugin), pytest.warns(ConvergenceWarning, match="no assignment yet: Ctrl-C"):
        found = graph.solve_map(exact=True, solver="interrupted")
    assert found.interrupted
    assert not found.found.any()
    assert found.bound[0] >= 2.0
