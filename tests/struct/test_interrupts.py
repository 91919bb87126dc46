"""Ctrl-C and limits of time get through to whatever compiled code is at."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forks import Server
from lpsmap import BinaryTree, ConvergenceWarning, DepTree, FactorGraph, Status, Xor

GENEROUS = 10.0
"""Seconds that machines may take which do a hundred other things. Alone it is a tenth of one."""

COMPILING = 400.0
"""Seconds that they may take to compile all that a solve needs. Alone it is less than a minute."""

HEAD = """
import signal, sys, time, warnings
import numpy as np
from lpsmap import AtMostOne, BinaryTree, DepTree, Factor, FactorGraph, Sequence, Xor
warnings.simplefilter("ignore")
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)

def near_uniform(*shape):
    graph = FactorGraph()
    return graph, graph.variable_from(1e-3 * rng.normal(size=shape))

def interrupted(run):
    print("ready", flush=True)
    try:
        run()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""

HARD = {
    "projective trees": """
graph, u = near_uniform(200, 200)
graph.add(DepTree(u, projective=True))
""",
    "longer projective trees": """
graph, u = near_uniform(300, 300)
graph.add(DepTree(u, projective=True))
""",
    "binary trees": """
graph, u = near_uniform(60, 60)
graph.add(BinaryTree(u))
""",
    "chains": """
graph, u = near_uniform(150, 100)
graph.add(Sequence(u, np.zeros((100, 100))))
""",
    "a batch in threads": """
graph, u = near_uniform(200, 40, 40)
graph.add(DepTree(u, projective=True))
""",
}

AGAIN = """
graph.solve(max_inner_iter=20)
def briefly(graph):
    return graph.solve(max_inner_iter=4).values.tobytes()
fresh = briefly(graph)
begin = time.perf_counter()
interrupted(lambda: graph.solve(max_inner_iter=10**6))
print(time.perf_counter() - begin, briefly(graph) == fresh, flush=True)
"""


def run(
    server: Server,
    code: str,
    *delays: float,
    patience: float = GENEROUS * 6,
    **environment: str,
) -> list[list[str]]:
    """Run code in a child, which says "ready" as often as there are delays.

    Send it SIGINT so many seconds after each; return what else it says after each.
    """
    threads = {"LPSMAP_THREADS": "2"}
    child = server.begin(HEAD + code, Path.cwd(), {**os.environ, **threads, **environment})
    watchdog = threading.Timer(patience, child.kill)
    said: list[list[str]] = []
    with child:
        try:
            for line in child.stdout or ():
                if line == "ready\n":
                    watchdog.cancel()
                    time.sleep(delays[len(said)])
                    child.send_signal(signal.SIGINT)
                    watchdog = threading.Timer(patience, child.kill)
                    watchdog.start()
                    said.append([])
                else:
                    said[-1] += line.split()
            assert child.wait() == 0, child.stderr and child.stderr.read()
        finally:
            watchdog.cancel()
            child.kill()
    return said


@pytest.mark.compiled
def test_hard_solves_are_interrupted(warm_server: Server) -> None:
    said = run(warm_server, "".join(make + AGAIN for make in HARD.values()), *[0.2] * len(HARD))
    for name, (word, seconds, same) in zip(HARD, said, strict=True):
        assert word == "interrupted", name
        assert float(seconds) < GENEROUS, name
        assert same == "True", name


@pytest.mark.compiled
def test_a_graph_of_millions_of_links_is_interrupted(warm_server: Server) -> None:
    code = """
def solve():
    graph, u = near_uniform(1000, 2500)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    graph.solve(tol=0.0, max_iter=10**6)
near_uniform(3, 4)[0].solve()
interrupted(solve)
interrupted(solve)
"""
    assert run(warm_server, code, 0.2, 1.5) == [["interrupted"]] * 2


def test_backward_passes_and_small_solves_are_interrupted(warm_server: Server) -> None:
    code = """
def train():
    while True:
        graph, u = near_uniform(5, 6)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=0))
        graph.solve().vjp(np.ones(30))
for _ in range(3):
    interrupted(train)
"""
    assert run(warm_server, code, 0.5, 0.2, 0.4) == [["interrupted"]] * 3


def test_python_oracles_are_interrupted(warm_server: Server) -> None:
    code = """
class Slow(Factor):
    def solve_map(self, eta_u, eta_v):
        end = time.perf_counter() + 0.01
        while time.perf_counter() < end:
            pass
        return tuple((eta_u > 0).astype(int).tolist())
    def vertex(self, y):
        return np.array(y, dtype=float), np.empty(0)

def solve():
    graph, u = near_uniform(400, 100)
    graph.add(Slow(u))
    graph.add(Xor(u, axis=0))
    graph.solve(max_iter=10**6)
interrupted(solve)
interrupted(solve)
"""
    assert run(warm_server, code, 0.5, 0.7) == [["interrupted"]] * 2


@pytest.mark.compiled
@pytest.mark.slow
@pytest.mark.parametrize("delay", [2.0, 7.0, 15.0])
def test_compiling_is_interrupted(tmp_path: Path, delay: float, server: Server) -> None:
    code = """
def solve():
    graph, u = near_uniform(5, 6)
    graph.add(Sequence(u, np.zeros((6, 6))))
    graph.add(AtMostOne(u, axis=0))
    return graph.solve().values
def solve_and_wait():
    solve()
    time.sleep(100)
interrupted(solve_and_wait)
print(solve().sum() > 0)
"""
    options: dict[str, Any] = {"patience": COMPILING, "NUMBA_CACHE_DIR": str(tmp_path)}
    assert run(server, code, delay, **options) == [["interrupted", "True"]]
    assert run(server, code, delay, **options)[0][-1] == "True"


@pytest.mark.compiled
def test_what_any_handler_raises_gets_through() -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are the main thread's")

    class Alarm(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise Alarm

    graph = FactorGraph()
    scores = 1e-3 * np.random.default_rng(0).normal(size=(120, 120))
    graph.add(BinaryTree(graph.variable_from(scores)))
    with pytest.warns(ConvergenceWarning):
        graph.solve(max_inner_iter=20)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(Alarm):
            graph.solve(max_inner_iter=10**6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.compiled
def test_the_time_limit_holds_inside_a_lone_factor() -> None:
    graph = FactorGraph()
    scores = 1e-3 * np.random.default_rng(0).normal(size=(120, 120))
    u = graph.variable_from(scores)
    graph.add(BinaryTree(u))
    with pytest.warns(ConvergenceWarning):
        assert graph.solve(max_inner_iter=20).status[0] is Status.INNER_ITERATION_LIMIT
    begin = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="raise max_time"):
        solution = graph.solve(max_inner_iter=10**6, max_time=0.5)
    assert time.perf_counter() - begin < GENEROUS
    assert solution.status.tolist() == [Status.TIME_LIMIT]
    np.testing.assert_allclose(u.value.sum(), 2 * 120 - 1, rtol=1e-6)


@pytest.mark.compiled
def test_the_time_of_one_thread_is_not_that_of_another() -> None:
    graph, other = FactorGraph(), FactorGraph()
    rng = np.random.default_rng(0)
    graph.add(BinaryTree(graph.variable_from(1e-3 * rng.normal(size=(120, 120)))))
    scores = rng.normal(size=(100, 20, 20))
    other.add(DepTree(other.variable_from(scores), projective=True))
    alone = other.solve().values.copy()
    found: list[bool] = []

    def solve() -> None:
        for _ in range(10):
            solution = other.solve()
            found.append(solution.ok and np.array_equal(solution.values, alone))

    thread = threading.Thread(target=solve)
    thread.start()
    with pytest.warns(ConvergenceWarning, match="raise max_time"):
        graph.solve(max_inner_iter=10**6, max_time=0.3)
    thread.join()
    assert found == [True] * 10


def test_nothing_is_left_over_from_a_limit() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.eye(4))
    graph.add(Xor(u))
    graph.add(Xor(u, axis=0))
    with pytest.warns(ConvergenceWarning, match="raise max_time"):
        graph.solve(max_time=1e-9, tol=0.0, max_iter=10**9, adapt=False)
    assert graph.solve().ok
