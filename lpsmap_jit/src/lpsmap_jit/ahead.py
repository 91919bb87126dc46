"""Compilation ahead of use: jobs in processes of their own, which count what they compile.

A process does one job after another, since to start it and to load kernels takes seconds.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import NamedTuple

from lpsmap_jit.announcements import QUIET
from lpsmap_jit.baselines import NATIVE
from lpsmap_jit.cache import KernelCache
from lpsmap_jit.tiers import COMPILE_AFTER

PLAIN = {"NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}
"""Colours of messages that numba composes and drops take a fortieth of the time."""


class Job(NamedTuple):
    """The result of a job: how many functions were compiled, or how it failed."""

    name: str
    seconds: float
    functions: int
    error: str = ""


def run_jobs(module: str, names: Sequence[str], n_parallel: int, native: bool) -> Iterator[Job]:
    """Yield the results of jobs. The first one ends before the others start.

    Parameters
    ----------
    module
        It calls `do_jobs` when it is run.
    names
        The names of the jobs.
    n_parallel
        Maximum number of concurrent processes.
    native
        Whether kernels that are installed for baseline processors are compiled for this one.
    """
    environment = {**os.environ, **PLAIN, "LPSMAP_THREADS": "1", COMPILE_AFTER: "0", QUIET: "1"}
    if native:
        environment[NATIVE] = "1"
    workers: SimpleQueue[_Worker] = SimpleQueue()
    for _ in range(n_parallel):
        workers.put(_Worker(module, environment))

    def run(name: str) -> Job:
        worker = workers.get()
        try:
            return worker.run(name)
        finally:
            workers.put(worker)

    first, *others = names
    with ThreadPoolExecutor(n_parallel) as pool:
        try:
            yield run(first)
            for future in as_completed([pool.submit(run, name) for name in others]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
            for _ in range(n_parallel):
                workers.get().stop()


class _Worker:
    """A process that starts with its first job, and anew after a job that ends it."""

    def __init__(self, module: str, environment: dict[str, str]) -> None:
        self._command, self._environment = [sys.executable, "-m", module], environment
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop

    def run(self, name: str) -> Job:
        begin = time.perf_counter()
        answer = self._ask(name)
        return Job(name, time.perf_counter() - begin, *answer)

    def _ask(self, name: str) -> tuple[int, str]:
        """Return the number of compiled functions and the error of a job."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{name}\n")
            process.stdin.flush()
        except OSError:  # it ended, and so its answer is empty
            pass
        answer = process.stdout.readline()
        if answer:
            functions, error = json.loads(answer)
            return functions, error
        process.communicate()
        self._process = None
        self._errors.seek(0)
        return 0, self._errors.read().strip() or f"ended with {process.returncode}"

    def _start(self) -> subprocess.Popen[str]:
        self._errors.seek(0)
        self._errors.truncate()
        return subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()  # it ends with its input
        self._errors.close()


# -------------------------------------------------------------------- in the separate process


def do_jobs(job: Callable[[str], None]) -> None:
    """Call a function with every line of the input; print how many functions that compiled."""
    answers, sys.stdout = sys.stdout, sys.stderr
    gc.disable()  # to look through numba's objects again and again takes a sixth of the time
    for line in sys.stdin:
        error, before = "", KernelCache.n_compiled
        try:
            job(line.strip())
        except Exception:
            error = traceback.format_exc()
        answer = json.dumps([KernelCache.n_compiled - before, error])
        print(answer, file=answers, flush=True)
        gc.collect()
        gc.freeze()  # the next collection looks through the objects of one job only
