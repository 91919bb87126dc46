"""Whatever ends a global search, its answer stands and its bound holds."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import FIVE, OPTIMUM, OPTIMUM_OF_EIGHT
from forks import Server
from lpsmap_core import Deadline
from lpsmap_decode import SearchProgress
from lpsmap_search import Certified, Corpus, DependencyModelWithValence, global_search, restarts
from lpsmap_search.progress import status_text
from lpsmap_search.relaxations import RELAXATIONS, relaxation_named
from searching import Searching, eight

CORPUS = Corpus(DependencyModelWithValence("VNA"), FIVE)


def interrupts_after(n: int) -> dict[str, object]:
    reports: list[int] = []

    def report(found: SearchProgress) -> None:
        reports.append(found.n_nodes)
        if len(reports) == n:
            raise KeyboardInterrupt

    return {"report": report}


def signals_after(n: int) -> dict[str, object]:
    reports: list[int] = []

    def report(found: SearchProgress) -> None:
        reports.append(found.n_nodes)
        if len(reports) == n:
            os.kill(os.getpid(), signal.SIGINT)

    return {"report": report}


def check(found: Certified, corpus: Corpus, optimum: float) -> None:
    assert math.isfinite(found.objective) and math.isfinite(found.bound)
    assert found.objective <= optimum + 1e-9
    assert found.objective == pytest.approx(corpus.model.log_likelihood(found.counts), abs=1e-9)
    assert optimum - 1e-9 <= found.bound <= 0.0
    assert found.gap == found.bound - found.objective
    assert found.seconds > 0.0
    assert found.proved == (found.gap <= 0.01 * abs(found.objective) + 1e-9)


@pytest.fixture
def interrupts() -> object:
    """Have interrupts raise, which the shell that started this may have turned off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("options", "n_nodes"),
    [
        ({}, (1000, 5000)),
        ({"max_nodes": 100}, (100, 100)),
        ({"max_time": 0.0}, (0, 0)),
        (interrupts_after(1), (0, 0)),
        (interrupts_after(10), (10, 9 * 32)),
        (signals_after(10), (10, 9 * 32)),
    ],
    ids=["finished", "nodes", "time", "before the first box", "a report raises", "Ctrl-C"],
)
@pytest.mark.compiled
def test_exits(options: dict[str, object], n_nodes: tuple[int, int], interrupts: None) -> None:
    found = global_search(CORPUS, **options)
    check(found, CORPUS, OPTIMUM)
    assert n_nodes[0] <= found.n_nodes <= n_nodes[1]
    assert found.interrupted == ("report" in options)
    assert found.proved == (not options)
    assert (found.bound == 0.0) == (found.n_nodes == 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.compiled
def test_ctrl_c_in_the_search(warm_server: Server) -> None:
    with Searching(warm_server, sleep=0.02) as child:
        child.searched(320)
        child.process.send_signal(signal.SIGINT)
        found = child.result()
    assert found["interrupted"] and not found["proved"]
    assert 320 <= found["n_nodes"] < 5000
    assert found["objective"] <= OPTIMUM_OF_EIGHT + 1e-9 <= found["bound"]


@pytest.mark.compiled
def test_ctrl_c_in_the_restarts(warm_server: Server) -> None:
    with Searching(warm_server, n_restarts=10**6) as child:
        assert child.word() == "ready"
        time.sleep(0.3)
        child.process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        found = child.result()
    assert time.monotonic() - sent < 30.0
    assert found["interrupted"] and not found["proved"]
    assert (found["n_nodes"], found["bound"]) == (0, 0.0)
    assert -60.0 < found["objective"] <= OPTIMUM_OF_EIGHT + 1e-9


def test_restarts_end_with_a_deadline() -> None:
    deadline, options = Deadline(), {"n_restarts": 9, "start": "random", "smoothing": 0.0}
    assert restarts(CORPUS, **options, deadline=deadline).n_steps > 9
    deadline.end()
    found = restarts(CORPUS, **options, deadline=deadline)
    assert found.n_steps == 1
    assert found.objective == pytest.approx(CORPUS.model.log_likelihood(found.counts))


def test_reports_are_of_a_search_that_only_gets_better() -> None:
    seen: list[tuple[float, float, int, float]] = []
    found = global_search(
        CORPUS,
        max_nodes=500,
        report=lambda f: seen.append((f.score, f.bound, f.n_nodes, f.seconds)),
    )
    scores, bounds, counts, seconds = zip(*seen, strict=True)
    for rising in (scores, counts, seconds):
        assert list(rising) == sorted(rising)
    assert list(bounds) == sorted(bounds, reverse=True)
    assert (counts[0], counts[-1], bounds[0]) == (0, found.n_nodes, 0.0)
    assert (scores[-1], bounds[-1]) == (found.objective, found.bound)


def test_a_line_is_shown_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    found = global_search(CORPUS, max_nodes=300, progress=True)
    (line,) = re.findall("objective .*", capfd.readouterr().err)[-1:]
    objective, bound, gap, nodes, *_ = re.findall(r"-?[\d.,]+", line)
    assert (float(objective), float(bound)) == (round(found.objective, 4), round(found.bound, 4))
    assert (float(gap), nodes) == (round(found.gap, 4), "300")
    global_search(CORPUS, max_nodes=300)
    assert capfd.readouterr().err == ""


def test_the_line_has_the_speed_of_this_process() -> None:
    begin = SearchProgress(n_nodes=1000, seconds=50.0)
    line = status_text(SearchProgress(-20.0, -18.5, 4000, 52.0), begin)
    assert (
        line == "objective -20.0000  bound -18.5000  gap 1.5000  4,000 nodes  1,500 nodes/s  52.0 s"
    )


def test_the_line_asks_for_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ModuleNotFoundError, match=r"lpsmap-search\[progress\]"):
        global_search(CORPUS, progress=True)


@pytest.mark.compiled
def test_chords_prove_the_corpus_of_five_in_pieces(tmp_path: Path) -> None:
    pytest.importorskip("highspy", reason="highspy is not installed: the extra [programs]")
    options: dict[str, Any] = {"relaxation": "chord", "gap": 0.1, "checkpoint": tmp_path / "a"}
    early = global_search(CORPUS, **options, max_nodes=50)
    assert early.n_nodes == 50 and OPTIMUM - 1e-9 <= early.bound <= 0.0
    found = global_search(CORPUS, **options, executor=ThreadPoolExecutor(2))
    assert found.proved and found.n_nodes > 50
    assert found.objective >= OPTIMUM - 0.1 * abs(OPTIMUM)
    assert OPTIMUM - 1e-9 <= found.bound <= OPTIMUM + 0.1 * abs(OPTIMUM) + 1e-9
    with pytest.raises(ValueError, match="belongs to another relaxation"):
        global_search(CORPUS, **options | {"relaxation": "lagrangian"})


def test_relaxations_are_named() -> None:
    assert global_search(CORPUS, relaxation="lagrangian", max_nodes=10).n_nodes == 10
    for wrong in ("chords", None, ["lagrangian"]):
        with pytest.raises(
            ValueError, match=r"relaxation: got .*; expected one of 'chord', 'lagrangian'"
        ):
            global_search(CORPUS, relaxation=wrong)


@pytest.mark.parametrize("name", RELAXATIONS)
def test_boxes_can_be_packed(name: str) -> None:
    if name != "lagrangian":
        pytest.importorskip("highspy", reason="highspy is not installed: the extra [programs]")
    space = relaxation_named(name)(CORPUS, 0.01, constraint=None)
    evaluations = space.evaluate([space.root()], -30.0)
    nodes = [space.root(), *evaluations[0].children]
    arrays = space.pack(nodes)
    assert all(array.dtype.kind in "biuf" for array in arrays.values())
    same = space.unpack(arrays)
    assert len(same) == len(nodes) == 3
    for before, after in zip(
        space.evaluate(nodes, -30.0), space.evaluate(same, -30.0), strict=True
    ):
        assert before.bound == pytest.approx(after.bound, abs=1e-9)
        assert before.score == pytest.approx(after.score, abs=1e-9)
    wrong = {key: array[..., :-1] for key, array in arrays.items()}
    with pytest.raises((ValueError, KeyError)):
        space.unpack(wrong)
    with pytest.raises((ValueError, KeyError)):
        space.unpack({})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gap": np.nan}, ValueError, "gap: got nan"),
        ({"gap": "small"}, TypeError, "gap: got 'small'; expected a finite number"),
        ({"max_time": -1}, ValueError, "max_time: got -1"),
        ({"max_nodes": -3}, ValueError, "max_nodes: got -3"),
        ({"max_nodes": 2.5}, TypeError, "max_nodes: got 2.5; expected an integer"),
        ({"n_restarts": True}, TypeError, "n_restarts: got True"),
        ({"checkpoint_interval": np.nan}, ValueError, "checkpoint_interval: got nan"),
        ({"checkpoint_interval": -1.0}, ValueError, "checkpoint_interval: got -1.0"),
        ({"progress": "yes"}, TypeError, "progress: got 'yes'; expected True or False"),
        ({"executor": 0}, ValueError, "executor: got 0"),
        (
            {"executor": 2.0},
            TypeError,
            "executor: got 2.0; expected an integer of at least 1, an Executor",
        ),
        ({"executor": lambda: 3}, TypeError, "executor: got a function that returns an int"),
    ],
)
def test_bad_options_are_refused(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        global_search(CORPUS, **options)


def test_a_corpus_of_one_word_needs_no_box() -> None:
    corpus = Corpus(DependencyModelWithValence("a"), ["a"])
    for options in ({}, {"max_time": 0.0}, {"executor": 1}):
        found = global_search(corpus, **options)
        assert (found.objective, found.bound, found.n_nodes) == (0.0, 0.0, 0)
        assert found.proved


@pytest.mark.compiled
def test_no_time_and_no_proof() -> None:
    corpus = eight()
    found = global_search(corpus, max_time=0.0, n_restarts=50)
    check(found, corpus, OPTIMUM_OF_EIGHT)
    assert (found.n_nodes, found.bound) == (0, 0.0)
