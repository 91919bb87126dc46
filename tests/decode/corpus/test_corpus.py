"""Many problems, solved by the workers of an executor."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import remote_jobs
from lpsmap_core import FactorGraph
from lpsmap_decode import Outcome, solve_many
from lpsmap_decode.corpus.batches import Batches
from lpsmap_decode.corpus.jobs import Problem
from lpsmap_factors_logic import AtMostOne, Pair, Xor


def frustrated(seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(2, 3)))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    i, j = np.triu_indices(6, 1)
    flat = u.reshape(-1)
    graph.add(Pair(flat[i], flat[j], rng.normal(size=len(i))))
    return graph


def forked(n: int = 2) -> Executor:
    """Return processes that start at once, which those that solve_many starts do not."""
    return ProcessPoolExecutor(n, mp_context=get_context("fork"))


@pytest.mark.parametrize("task", ["sparsemap", "lp-map", "map"])
def test_outcomes_are_those_of_the_graphs_themselves(task: str) -> None:
    for outcome in solve_many(map(frustrated, range(4)), task=task):
        graph = frustrated(outcome.index)
        verb = graph.solve if task == "sparsemap" else graph.solve_map
        found = verb(**{"exact": True} if task == "map" else {})
        np.testing.assert_array_equal(outcome.values[0], graph.blocks[0].value)
        assert outcome.ok == found.ok
        if task == "map":
            assert outcome.status == ("PROVED",)
            assert outcome.bound == pytest.approx(outcome.score)


@pytest.mark.parametrize("ordered", [True, False])
def test_threads_and_processes_say_the_same(ordered: bool) -> None:
    graphs = [frustrated(seed) for seed in range(6)]
    expected = [outcome.values[0] for outcome in solve_many(graphs, task="map")]
    for executor in (ThreadPoolExecutor(2), 1 if ordered else forked):
        outcomes = list(solve_many(graphs, executor, task="map", ordered=ordered))
        numbers = [outcome.index for outcome in outcomes]
        assert sorted(numbers) == list(range(6))
        assert numbers == sorted(numbers) or not ordered
        for outcome in outcomes:
            np.testing.assert_array_equal(outcome.values[0], expected[outcome.index])


@pytest.mark.parametrize("executor", [None, forked])
def test_an_error_is_one_problem_s_own(executor: Callable[[], Executor] | None) -> None:
    outcomes = list(
        solve_many([*range(6), lambda: None], executor, build=remote_jobs.fails_at_three)
    )
    assert [outcome.index for outcome in outcomes if outcome.error is not None] == [3, 6]
    assert "three" in str(outcomes[3].error)
    assert "fails_at_three" in outcomes[3].traceback
    with pytest.raises(RuntimeError, match=r"problem 3 has no values: .*three"):
        _ = outcomes[3].values
    for outcome in outcomes[:3] + outcomes[4:6]:
        assert outcome.values[0].argmax() == outcome.index


def test_a_graph_is_needed() -> None:
    (outcome,) = solve_many([3])
    assert "expected a FactorGraph" in str(outcome.error)


def test_a_dead_worker_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    problems = [(number, tmp_path / "mark") for number in range(12)]
    outcomes = list(solve_many(problems, forked, build=remote_jobs.kills_once, batch_size=2))
    assert (tmp_path / "mark").exists()
    assert [outcome.index for outcome in outcomes] == list(range(12))
    assert [outcome.values[0].argmax() for outcome in outcomes] == [*range(10), 0, 1]


def test_a_problem_that_kills_is_found(tmp_path: Path) -> None:
    outcomes = list(
        solve_many(range(6), forked, build=remote_jobs.kills_always_at_two, batch_size=3)
    )
    assert [outcome.index for outcome in outcomes] == list(range(6))
    assert [outcome.index for outcome in outcomes if outcome.error is not None] == [2]
    assert "died twice" in str(outcomes[2].error)


def test_workers_that_all_die_are_an_error() -> None:
    with pytest.raises(BrokenExecutor, match="__main__"):
        list(solve_many([2] * 4, forked, build=remote_jobs.kills_always_at_two))


def test_a_given_executor_that_breaks_is_an_error_with_a_mend() -> None:
    with forked() as executor, pytest.raises(BrokenExecutor, match=r"executor=lambda: Proc"):
        list(solve_many(range(4), executor, build=remote_jobs.kills_always_at_two))


def test_a_given_executor_stays_open() -> None:
    with ThreadPoolExecutor(1) as executor:
        assert next(solve_many(range(40), executor, build=remote_jobs.slow_row)).index == 0
        assert executor.submit(lambda: 1).result() == 1


def test_leaving_early_ends_the_workers_at_once() -> None:
    made: list[Executor] = []

    def make() -> Executor:
        made.append(forked(1))
        return made[-1]

    outcomes = solve_many(itertools.count(), make, build=remote_jobs.slow_row)
    next(outcomes)
    (process,) = made[0]._processes.values()
    begin = time.monotonic()
    outcomes.close()
    process.join(5.0)
    assert time.monotonic() - begin < 1.0
    assert not process.is_alive()


def test_problems_are_read_as_they_are_needed() -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            read.append(number)
            yield number

    outcomes = solve_many(numbers(), build=remote_jobs.row)
    assert [next(outcomes).index for _ in range(3)] == [0, 1, 2]
    assert read == [0, 1, 2]


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("executor", [ThreadPoolExecutor, forked])
def test_few_problems_are_read_while_one_is_slow(
    executor: Callable[[int], Executor], batch_size: int, tmp_path: Path
) -> None:
    read: list[int] = []

    def problems() -> Iterator[tuple[int, Path]]:
        for number in itertools.count():
            read.append(number)
            yield number, tmp_path / "go"

    most = 4 * 2 * batch_size  # four batches for each of two workers
    outcomes = solve_many(
        problems(), lambda: executor(2), build=remote_jobs.first_waits, batch_size=batch_size
    )
    waiting = threading.Thread(target=lambda: found.append(next(outcomes)), daemon=True)
    found: list[Outcome] = []
    waiting.start()
    until = time.monotonic() + 20.0
    while len(read) < most and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.5)
    n_read, n_found = len(read), len(found)
    (tmp_path / "go").touch()  # whatever was read: workers that wait would hold up the tests' end
    assert n_read == most
    assert n_found == 0
    waiting.join()
    found += itertools.islice(outcomes, 59)
    assert [outcome.index for outcome in found] == [*range(60)]
    assert len(read) <= 60 + most
    outcomes.close()  # type: ignore[attr-defined]


def test_the_order_of_completion_waits_for_nobody(tmp_path: Path) -> None:
    problems = ((number, tmp_path / "go") for number in range(60))
    with ThreadPoolExecutor(2) as executor:
        outcomes = solve_many(
            problems, executor, build=remote_jobs.first_waits, batch_size=1, ordered=False
        )
        found = [outcome.index for outcome in itertools.islice(outcomes, 59)]
        (tmp_path / "go").touch()
        assert sorted(found) == [*range(1, 60)]
        assert [outcome.index for outcome in outcomes] == [0]


def test_structures_come_back_in_words() -> None:
    outcomes = solve_many([3, 14], forked, build=remote_jobs.row, extract=remote_jobs.positions)
    assert [outcome.extracted for outcome in outcomes] == [[3], [4]]


def test_files_are_problems(tmp_path: Path) -> None:
    path = tmp_path / "a.uai"
    path.write_text("MARKOV 1 2 1 1 0 2 1 3")
    good, bad = solve_many([path, str(tmp_path / "b.uai")], task="map")
    np.testing.assert_array_equal(good.values["x0"], [0.0, 1.0])
    assert isinstance(bad.error, FileNotFoundError)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"task": "best"}, ValueError, "expected one of sparsemap, lp-map, map"),
        ({"exact": True, "task": "map"}, TypeError, "does not accept the option 'exact'"),
        ({"gap": 0.1}, TypeError, "does not accept the option 'gap'"),
        ({"tol": -1.0}, ValueError, "tol"),
        ({"executor": 0}, ValueError, "executor"),
        ({"executor": "two"}, TypeError, "executor"),
        ({"executor": lambda: 3}, TypeError, "returns a concurrent.futures.Executor"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"executor": 1, "build": lambda x: x}, (AttributeError, pickle.PicklingError), "pickle"),
    ],
)
def test_wrong_arguments_are_told_before_anything_starts(
    arguments: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        solve_many([], **arguments)


def test_batches_take_about_as_long_each() -> None:
    problems = [Problem(i, b"1" * size, True) for i, size in enumerate([10] * 50 + [100] * 20)]
    batches = Batches(problems, lambda problem: len(problem.content), None)
    sizes: list[list[int]] = []
    while batch := batches.take():
        sizes.append([len(problem.content) for problem in batch])
        batches.learn(batch, sum(sizes[-1]) / 400.0)  # 400 a second, hence 200 a batch
    assert sizes[0] == [10]
    assert sizes[1:3] == [[10] * 20] * 2
    assert sizes[-3:] == [[100, 100], [100, 100], [100]]
    assert sum(map(len, sizes)) == len(problems)


def test_a_bar_is_shown_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    list(solve_many(range(5), build=remote_jobs.fails_at_three, progress=True))
    assert "5/5 1 failed" in capfd.readouterr().err


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Have interrupts raise, which the shell that started this may have turned off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_stream(interrupts: None) -> None:
    outcomes = solve_many(itertools.count(), forked, build=remote_jobs.slow_row)
    found: list[Outcome] = []
    with pytest.raises(KeyboardInterrupt):
        for outcome in outcomes:
            found.append(outcome)
            if len(found) == 3:
                threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
    assert [outcome.index for outcome in found] == list(range(len(found)))


@pytest.fixture
def dask_executor() -> Iterator[Callable[[], Executor]]:
    distributed = pytest.importorskip(
        "distributed", reason="dask.distributed is not installed: the extra [distributed]"
    )
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor


def test_dask_says_the_same(dask_executor: Callable[[], Executor]) -> None:
    outcomes = list(solve_many([*range(30)], dask_executor(), build=remote_jobs.fails_at_three))
    assert [outcome.index for outcome in outcomes] == list(range(30))
    assert [outcome.index for outcome in outcomes if outcome.error] == [3]
    assert all(o.values[0].argmax() == o.index % 10 for o in outcomes if not o.error)


@pytest.mark.slow
def test_dask_does_again_what_a_dead_worker_had(tmp_path: Path) -> None:
    distributed = pytest.importorskip(
        "distributed", reason="dask.distributed is not installed: the extra [distributed]"
    )
    problems = [(number, tmp_path / "mark") for number in range(40)]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        outcomes = list(
            solve_many(problems, client.get_executor(), build=remote_jobs.kills_once, batch_size=4)
        )
    assert (tmp_path / "mark").exists()
    assert [outcome.index for outcome in outcomes] == list(range(40))
    assert [outcome.values[0].argmax() for outcome in outcomes] == [*range(10)] * 4
