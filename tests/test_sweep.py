"""A short sweep: every type and verb at one small size in this process, and one child process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

import pytest

import sweep
import sweep_cases
from sweep import Task
from sweep_cases import COMPANIES, Case
from sweep_verbs import JUDGES, VERBS

SIZE = 3


@pytest.mark.compiled
@pytest.mark.parametrize("kind", sweep_cases.kinds())
def test_verbs_of_every_type(kind: str) -> None:
    """In one of the companies, which take turns."""
    check_verbs(kind, [sweep_cases.kinds().index(kind) % len(COMPANIES)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", sweep_cases.kinds())
def test_verbs_of_every_type_in_every_company(kind: str) -> None:
    check_verbs(kind, range(len(COMPANIES)))


def check_verbs(kind: str, seeds: Iterable[int]) -> None:
    """Small graphs are what the judges say; all verbs end."""
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for verb in VERBS.values():
                verb(Case(kind, SIZE, seed), 5.0)()
            wrong = [words for judge in JUDGES.values() for words in judge(Case(kind, 2, seed))]
        assert not wrong


@pytest.mark.compiled
def test_a_child_process() -> None:
    """Children answer in time, in freed memory that is overwritten, and one Ctrl-C."""
    tasks = [Task("Xor", 6, verb, 1) for verb in VERBS]
    job = sweep.Job([*tasks, Task("Xor", 6, "solve", 1, True)], 10.0, 0.0).run()
    assert not job.failures
    assert len(job.records) == len(tasks) + 1
    assert job.records[-1]["answer"] == "interrupted"


FAULTS = {
    "os.abort()": "the process died: SIGABRT",
    "os._exit(3)": "the process died: exit code 3",
    "time.sleep(60)": "hangs: no answer within 1 s",
    "say('raised', error='ValueError: planted', trace='')": "ValueError: planted",
    "say('ends', wall=1.5, cpu=1.0)": "took 1.5 s, 1.0 s of them on a processor",
    "say('ends', wrong=['planted'])": "planted",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of two tasks fails in the first; the second is done by another one."""
    code = f"""
import json, os, time, sys
def say(word, **more): print(json.dumps(dict(word=word, at=0.0, **more)), flush=True)
for kind, size, verb, seed, interrupted in json.loads(sys.stdin.readline())[0]:
    say("prepares")
    say("begins")
    if seed == 0:
        {fault}
    else:
        say("ends", wall=0.1, cpu=0.1)
"""
    monkeypatch.setattr(sweep, "PROGRAM", [sys.executable, "-c", code])
    monkeypatch.setattr(sweep, "COMPILED", 60.0)
    slack = 1.0 / 35.0 if "sleep" in fault else 0.2
    if "sleep" in fault:
        monkeypatch.setattr(sweep, "COMPILED", 60.0 * 35.0)
    tasks = [Task("Xor", 6, "solve", seed) for seed in range(2)]
    job = sweep.Job(tasks, slack, 0.0).run()
    assert [failure.task for failure in job.failures] == tasks[:1]
    assert job.failures[0].what == FAULTS[fault]
    assert job.records[-1]["seed"] == 1


def test_swallowed_ctrl_c_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import json, signal, sys, time
came = []
signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
def say(word, **more): print(json.dumps(dict(word=word, at=time.monotonic(), **more)), flush=True)
sys.stdin.readline()
say("prepares")
say("begins")
for _ in range(20):
    time.sleep(0.1)
    say("returned", signalled=bool(came))
sys.stdin.readline()
"""
    monkeypatch.setattr(sweep, "PROGRAM", [sys.executable, "-c", code])
    task = Task("Xor", 6, "solve", 0, True)
    job = sweep.Job([task], 1.0, 0.0).run()
    assert [failure.what for failure in job.failures] == ["swallowed Ctrl-C"]
