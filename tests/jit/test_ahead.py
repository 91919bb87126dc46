"""Jobs that compile ahead: a process does many, and one that ends it costs no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from lpsmap_jit.ahead import Job, run_jobs

pytestmark = pytest.mark.compiled

MODULE = """
import os, sys
from lpsmap_jit import kernel
from lpsmap_jit.ahead import do_jobs

@kernel
def twice(x):
    return 2 * x

def job(name):
    print("noise")
    if name == "die":
        print("no more", file=sys.stderr)
        os._exit(3)
    if name == "raise":
        raise ValueError("it rains")
    if name == "who":
        raise ValueError(os.getpid(), os.environ.get("LPSMAP_NATIVE"))
    twice(float(name))

if __name__ == "__main__":
    do_jobs(job)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LPSMAP_NATIVE", raising=False)


def untimed(job: Job) -> tuple[str, int, str]:
    return job.name, job.functions, job.error.strip().rpartition("\n")[2]


def test_jobs_share_a_process_until_one_ends_it() -> None:
    names = ["1", "2", "who", "raise", "who", "die", "3", "who"]
    found = [untimed(job) for job in run_jobs("jobs", names, 1, native=False)]
    assert found[:2] == [("1", 1, ""), ("2", 0, "")]
    assert found[3] == ("raise", 0, "ValueError: it rains")
    assert found[5:7] == [("die", 0, "no more"), ("3", 0, "")]
    before, again, after = found[2], found[4], found[7]
    assert before == again
    assert before[2].startswith("ValueError: (")
    assert after[2] != before[2]  # another process


def test_native_jobs_are_told_so() -> None:
    (job,) = run_jobs("jobs", ["who"], 2, native=True)
    assert "'1')" in job.error


def test_a_caller_may_stop_early() -> None:
    running = run_jobs("jobs", ["1", "2", "3"], 2, native=False)
    assert next(running).name == "1"
    running.close()
