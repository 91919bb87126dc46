"""HiGHS, a solver of mixed-integer linear programs (Huangfu & Hall 2018), in a child process."""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import spawn
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lpsmap_core.api import FloatArray, stacklevel
from lpsmap_decode.solvers import highs_process
from lpsmap_decode.solvers.map_solver import Answer, MapSolver, Program, SolverLimits, is_installed
from lpsmap_decode.solvers.row_scaling import MARGIN, meets_rows, scaled_rows

__all__ = ["HighsSolver", "arrays_of"]

GRACE_SECONDS = 0.3
"""Seconds that HiGHS may continue after its time limit, which some of its stages do not check."""

TOLERANCES = {
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}
"""The default tolerances of HiGHS weaken proofs: branches are pruned that could gain up to a
tolerance."""

NO_RESTARTS = {"mip_allow_restart": False}
"""Restarts solve the root anew once it has fixed some columns. From a known assignment, the proof
for the next best takes .2 to .8 of the time without them, and other programs no longer."""

SCALED_SCORE = 1024.0
"""Scores are scaled to about this maximum, since tolerances are absolute."""


class HighsSolver(MapSolver):
    """HiGHS, through the package highspy: cutting planes and branch and bound.

    It runs in a child process, which starts with the first program and ends with this object. HiGHS
    has state that all threads of a process share, and some of its stages hear of neither time limit
    nor Ctrl-C; a process can be ended at any time.
    """

    name: ClassVar[str] = "highs"

    def __init__(self) -> None:
        self._child: _Child | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Return a message if highspy is not installed."""
        if is_installed("highspy"):
            return None
        return "highspy is not installed. Install it with: pip install 'lpsmap-decode[highs]'"

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        """Solve a program; the time limit and Ctrl-C end it with the best assignment so far."""
        return self.solve_from(program, limits, None)

    def solve_from(
        self, program: Program, limits: SolverLimits, start: FloatArray | None
    ) -> Answer:
        """Solve a program from a known assignment.

        Parameters
        ----------
        program, limits
            As for `solve`.
        start
            Values of its variables, or None.

        Warns
        -----
        UserWarning
            If the child process fails, for example for lack of memory.
        """
        end = math.inf if limits.seconds is None else time.monotonic() + limits.seconds
        run = _Run(program, limits.gap, limits.threads, start)
        try:
            self._run(run, MARGIN, end)
            if run.missed and not run.unfinished and time.monotonic() < end:
                self._run(run, -MARGIN, end)  # the best assignment is not quite feasible
        except KeyboardInterrupt:
            run.interrupted = True
        finally:
            if run.unfinished and self._child is not None:
                self._child.end()
                self._child = None
        return Answer(run.values, run.bound, run.n_nodes, run.interrupted)

    def _run(self, run: _Run, margin: float, end: float) -> None:
        """Solve a program with moved sides; note assignments and bounds."""
        run.begin(margin)
        try:
            child = self._child = self._child or _Child()
            with _called_at(end + GRACE_SECONDS, child.kill):
                child.await_start()
                child.send(run.request(end))
                while run.unfinished:
                    run.note(*child.report())
        except (OSError, EOFError, pickle.UnpicklingError, RuntimeError) as error:
            if time.monotonic() < end:
                warnings.warn(
                    f"solver 'highs' has not finished: its process failed, perhaps for lack of "
                    f"memory ({type(error).__name__}: {error}). The assignment is the best so far; "
                    "solve with solver='lpsmap'.",
                    stacklevel=stacklevel(),
                )


class _Run:
    """A program and the answers so far, in units of its scores."""

    def __init__(
        self, program: Program, gap: float, threads: int, start: FloatArray | None
    ) -> None:
        self._program, self._gap, self._threads, self._start = program, gap, threads, start
        largest = float(np.abs(program.scores).max(initial=0.0))
        self._scale = (
            float(np.exp2(np.round(np.log2(SCALED_SCORE / largest)))) if largest > 0.0 else 1.0
        )
        self.values: FloatArray | None = None
        self._score, self.bound = -math.inf, math.inf
        self.n_nodes, self.unfinished, self.missed, self.interrupted = 0, False, False, False

    def begin(self, margin: float) -> None:
        """Begin with the program whose sides are moved by a margin."""
        self._margin, self._n_before = margin, self.n_nodes
        self.unfinished, self.missed = True, False

    def request(self, end: float) -> dict[str, Any]:
        """Return the request to the child process."""
        options = {**TOLERANCES, **NO_RESTARTS, "threads": self._threads}
        options |= {"mip_rel_gap": self._gap, "mip_abs_gap": self._gap * self._scale}
        if end < math.inf:
            options["time_limit"] = max(end - time.monotonic(), 0.0)
        program = scaled_rows(self._program, self._margin)
        scaled = dataclasses.replace(program, scores=self._scale * program.scores)
        return {**arrays_of(scaled), "options": options, "start": self._start}

    def note(self, kind: str, *content: Any) -> None:
        """Take note of a report of the child process.

        Raises
        ------
        RuntimeError
            If HiGHS failed.
        """
        if kind == highs_process.FAILED:
            raise RuntimeError(content[0])
        values, bound, n_nodes = content
        if self._margin > 0.0:  # bounds of a narrower program do not hold
            self.bound = min(self.bound, bound / self._scale)
        self.n_nodes = self._n_before + max(int(n_nodes), 0)
        self.unfinished = kind != highs_process.ENDED
        if values is None:
            return
        self.missed = not meets_rows(self._program, values)
        score = float(self._program.scores @ values)
        if not self.missed and score > self._score:
            self.values, self._score = values[: len(self._program.variables)], score


class _Child:
    """A child process that runs `highs_process`."""

    def __init__(self) -> None:
        python = os.fsdecode(spawn.get_executable())
        self._process = subprocess.Popen(
            [python, "-I", str(Path(highs_process.__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._started = False
        self.end = weakref.finalize(self, _end, self._process, os.getpid())
        self.kill = self._process.kill

    def await_start(self) -> None:
        """Wait until the process has imported HiGHS."""
        if not self._started:
            self.send(sys.path)
            kind, *content = self.report()
            if kind != highs_process.READY:
                raise RuntimeError(content[0])
            self._started = True

    def send(self, content: Any) -> None:
        """Send an object."""
        assert self._process.stdin is not None
        pickle.dump(content, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()

    def report(self) -> tuple[Any, ...]:
        """Wait for the next report."""
        assert self._process.stdout is not None
        try:
            report: tuple[Any, ...] = pickle.load(self._process.stdout)
        except EOFError:
            raise EOFError(f"exit code {self._process.wait()}") from None
        return report


@contextmanager
def _called_at(end: float, function: Callable[[], None]) -> Iterator[None]:
    """Call a function in another thread if a block lasts until a time; join the thread."""
    if end == math.inf:
        yield
        return
    timer = threading.Timer(max(end - time.monotonic(), 0.0), function)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a child process, unless this is a fork of its parent."""
    if os.getpid() != owner:
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError):  # it still had data
            pipe.close()


def arrays_of(program: Program) -> dict[str, Any]:
    """Return the arguments of `highs_process.model_of` for a program."""
    names = ("scores", "upper", "row", "column", "coefficient", "low", "high")
    return {**{name: getattr(program, name) for name in names}, "n_whole": len(program.variables)}
