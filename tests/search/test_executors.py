"""Boxes that are bounded by the workers of executors, in whatever order, and whoever dies."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import FIVE, OPTIMUM, OPTIMUM_OF_EIGHT
from forks import Server
from lpsmap_decode import Search, SearchProgress, Unfinished
from lpsmap_search import Certified, Corpus, DependencyModelWithValence, global_search
from lpsmap_search.lagrangian_space import LagrangianSpace
from lpsmap_search.relaxations import RELAXATIONS
from lpsmap_search.workers import Workers
from searching import AtOnce, Deadly, Searching

CORPUS = Corpus(DependencyModelWithValence("VNA"), FIVE)

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("poor_start")]

POOR: dict[str, Any] = {"n_restarts": 1, "seed": 2, "gap": 1e-3}
"""The first incumbent is far from the optimum, which a search without some boxes would miss."""


def forked(n: int = 2) -> Executor:
    """Return processes that start at once."""
    return ProcessPoolExecutor(n, mp_context=get_context("fork"))


class Late(ThreadPoolExecutor):
    """Threads that are done in another order than they begin."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit work that is late by chance."""

        def late() -> Any:
            found = fn(*args, **kwargs)
            time.sleep(0.02 * random.random() ** 4)
            return found

        return super().submit(late)


def check(found: Certified) -> None:
    assert found.proved and not found.interrupted
    assert found.objective == pytest.approx(OPTIMUM, rel=1e-13)
    assert OPTIMUM <= found.bound <= OPTIMUM + 1e-3 * abs(OPTIMUM) + 1e-9
    assert 500 < found.n_nodes < 10_000


@pytest.mark.parametrize(
    "make",
    [lambda: ThreadPoolExecutor(2), lambda: Late(4), AtOnce, forked],
    ids=["threads", "out of order", "at once", "processes"],
)
def test_whoever_looks_the_optimum_is_proved(make: Callable[[], Executor]) -> None:
    def report(found: SearchProgress) -> None:
        assert found.score <= OPTIMUM + 1e-9 <= found.bound + 2e-9

    with make() as executor:
        check(global_search(CORPUS, **POOR, executor=executor, report=report))
        assert executor.submit(int).result() == 0  # it stays open
        found = global_search(CORPUS, executor=executor, max_nodes=333, report=report)
        assert found.n_nodes == 333
    check(global_search(CORPUS, **POOR, executor=make))


def test_the_space_is_sent_once_to_a_process() -> None:
    sent: list[bool] = []

    class Watched(AtOnce):
        _max_workers = 1

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            sent.extend(arg is not None for arg in args[1:2])
            return super().submit(fn, *args, **kwargs)

    corpus = Corpus(DependencyModelWithValence("ANV"), FIVE)  # which no other test has sent
    assert global_search(corpus, executor=Watched()).proved
    assert sum(sent) <= 2 < len(sent)  # as many as wait at a time
    sent.clear()
    assert global_search(corpus, executor=Watched()).proved
    assert sum(sent) == 0


def test_looks_from_afar_are_those_from_here() -> None:
    space = LagrangianSpace(CORPUS, 0.01, n_steps=19)  # which no other test has sent
    search: Search[Any, Any] = Search(space.root(), 0.01, (-30.0, np.ones(45)), bound=0.0)
    search.run(space, max_nodes=50)
    nodes = list(search.take(40).nodes)  # more than one batch
    expected = space.evaluate(nodes[:32], -30.0)
    score = max(
        -30.0, *(evaluation.score for evaluation in expected if evaluation.answer is not None)
    )
    expected = [*expected, *space.evaluate(nodes[32:], score)]
    with AtOnce() as executor:
        workers = Workers(executor, space)
        assert workers.submit(nodes, -30.0).result().evaluations is None
        found = workers.submit(nodes, -30.0, again=True).result().evaluations
    assert not isinstance(found, Unfinished) and found is not None
    for one, other in zip(found, expected, strict=True):
        assert (one.bound, one.score) == (other.bound, other.score)
        assert (one.answer is None) == (other.answer is None)
        assert one.answer is None or (one.answer == other.answer).all()
        assert len(one.children) == len(other.children)
        for child, same in zip(one.children, other.children, strict=True):
            assert (child.bounds == same.bounds).all()
            assert (child.multipliers == same.multipliers).all()
    assert any(evaluation.answer is not None for evaluation in expected)


def test_a_dead_worker_loses_no_box(tmp_path: Path) -> None:
    check(global_search(CORPUS, **POOR, executor=lambda: Deadly(forked(), tmp_path, 1)))
    assert len(list(tmp_path.iterdir())) >= 1


def test_an_executor_that_breaks_is_replaced_by_this_process(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="executor: it broke: workers died"):
        check(global_search(CORPUS, **POOR, executor=Deadly(forked(), tmp_path, 1)))


def test_workers_that_always_die_are_given_up(tmp_path: Path) -> None:
    made: list[Executor] = []

    def make() -> Executor:
        made.append(Deadly(forked(), tmp_path, 10**6))
        return made[-1]

    with pytest.warns(RuntimeWarning, match="__main__"):
        check(global_search(CORPUS, **POOR, executor=make))
    assert len(made) == 3


def test_an_executor_that_was_shut_down_is_refused() -> None:
    for executor in (ThreadPoolExecutor(1), forked(1)):
        executor.shutdown()
        with pytest.raises(
            ValueError, match=r"executor: got one that does not accept work \(cannot"
        ):
            global_search(CORPUS, executor=executor, n_restarts=10**9)


def test_an_executor_that_is_shut_down_meanwhile() -> None:
    executor = ThreadPoolExecutor(2)

    def report(found: SearchProgress) -> None:
        if found.n_nodes > 100:
            executor.shutdown(wait=False, cancel_futures=True)

    with pytest.warns(RuntimeWarning, match="it was shut down"):
        check(global_search(CORPUS, **POOR, executor=executor, report=report))


@pytest.mark.parametrize("make", [None, lambda: ThreadPoolExecutor(2), forked])
def test_what_a_space_raises_is_raised(
    make: Callable[[], Executor] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the checkpoint is written, from which another release may go on."""
    monkeypatch.setitem(RELAXATIONS, "lagrangian", "searching:Failing")
    path = tmp_path / "five"
    with pytest.raises(RuntimeError, match="no bound"):
        global_search(CORPUS, **POOR, executor=make, checkpoint=path)
    monkeypatch.undo()
    check(global_search(CORPUS, **POOR, checkpoint=path))


def test_ctrl_c_that_reaches_a_worker_first(tmp_path: Path) -> None:
    class Interrupted(AtOnce):
        n = 0

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = super().submit(fn, *args, **kwargs)
            self.n += 1
            if self.n > 40:
                future = Future()
                future.set_exception(KeyboardInterrupt())
            return future

    path = tmp_path / "five"
    found = global_search(CORPUS, **POOR, executor=Interrupted(), checkpoint=path)
    assert found.interrupted and not found.proved and found.n_nodes > 100
    assert found.objective <= OPTIMUM + 1e-9 <= found.bound
    before = found.n_nodes
    found = global_search(CORPUS, **POOR, checkpoint=path)
    check(found)
    assert found.n_nodes > before


@pytest.mark.slow
def test_dask_proves_the_same() -> None:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        check(global_search(CORPUS, **POOR, executor=client.get_executor()))
        check(global_search(CORPUS, **POOR, executor=client.get_executor))


def test_boxes_that_are_out_are_open_in_a_checkpoint(tmp_path: Path) -> None:
    path, copies = tmp_path / "five", []

    def copy(found: SearchProgress) -> None:
        if path.exists():  # not before the first box
            copies.append(tmp_path / str(len(copies)))
            shutil.copy(path, copies[-1])

    options: dict[str, Any] = POOR | {"checkpoint": path, "checkpoint_interval": 0.0}
    check(global_search(CORPUS, executor=lambda: Late(4), report=copy, **options))
    check(global_search(CORPUS, **POOR, checkpoint=path))
    for one in copies[1 :: max(len(copies) // 4, 1)]:
        check(global_search(CORPUS, **POOR, checkpoint=one))


def interrupted_with_its_group(server: Server, tmp_path: Path, number: int) -> dict[str, Any]:
    path = tmp_path / "eight"
    with Searching(server, executor=2, checkpoint=str(path), sleep=0.02) as child:
        child.searched(500)
        os.killpg(child.process.pid, number)
        found = child.result() if number == signal.SIGINT else {}
        assert child.leaves_nothing()
    return found


def test_ctrl_c_leaves_no_processes(tmp_path: Path, warm_server: Server) -> None:
    found = interrupted_with_its_group(warm_server, tmp_path, signal.SIGINT)
    assert found["interrupted"] and not found["proved"]
    assert found["n_nodes"] >= 500
    assert found["objective"] <= OPTIMUM_OF_EIGHT + 1e-9 <= found["bound"]


@pytest.mark.slow
def test_processes_end_with_a_parent_that_is_killed(warm_server: Server) -> None:
    with Searching(warm_server, executor=2, sleep=0.02) as child:
        child.searched(500)
        child.kill()
        assert child.leaves_nothing()
