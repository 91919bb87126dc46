"""Sweep all factor types, verbs and sizes for processes that die, hang, ignore Ctrl-C or are wrong.

``python tests/sweep.py`` runs a child process for every installed type and every size, in which
freed memory is overwritten (``MALLOC_PERTURB_``). Every verb has five seconds: it is told so where
it takes a limit, and has to end by itself elsewhere. Graphs of a few variables are held against the
judges. At the largest size every verb is then sent one Ctrl-C at a random time. A child that dies
or hangs is replaced, and goes on behind what it died of.

It prints a table of what failed, each with the command that repeats it, writes all that it measured
to ``build/sweep.json``, and ends with exit code 1 if anything failed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import click
import numpy as np
from numba.core.event import install_recorder
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import sweep_cases
from sweep_cases import Case
from sweep_verbs import BEST_SO_FAR, JUDGES, VERBS

RECORD = Path(__file__).resolve().parent.parent / "build" / "sweep.json"

PROGRAM = [sys.executable, __file__, "--child"]
"""What children run."""

LARGE, SMALL = (6, 24, 50, 200), (1, 2, 3, 6)
"""Sizes at which verbs are timed, and at which answers are judged."""

SECONDS, LATE = 5.0, 1.0
"""What a verb may take, and by how much it may be late."""

ANSWERED = 1.5
"""Seconds from Ctrl-C to an answer."""

KILLED = 30.0
"""Seconds after which a child hangs, beside what verbs may take; what comes before a verb may take
as long again, and compiling `COMPILED`."""

COMPILED = 600.0

SHARE = {6: 6.0, 24: 10.0, 50: 15.0, 200: 30.0}
"""Seconds for which a child goes on with further seeds; of the first two all verbs are run."""

COMPILING = 3
"""Size of the graphs of which kernels are compiled, before verbs are timed."""

SEEDS, LEAST = 36, 2


class Task(NamedTuple):
    """A verb or a judge, asked of a drawn graph."""

    kind: str
    size: int
    verb: str
    seed: int
    interrupted: bool = False

    def command(self) -> str:
        """Return what repeats it."""
        words = ["python", "tests/sweep.py", "--only", self.kind, "--size", str(self.size)]
        words += ["--verb", self.verb, "--seed", str(self.seed)]
        return shlex.join([*words, "--interrupt"] if self.interrupted else words)


class Failure(NamedTuple):
    """What went wrong, and where."""

    task: Task
    what: str
    trace: str = ""


# -------------------------------------------------------------------- the child


def say(word: str, **more: Any) -> None:
    """Write a line for the parent, whole even where Ctrl-C comes meanwhile."""
    line = json.dumps({"word": word, "at": time.monotonic(), **more})
    os.write(sys.stdout.fileno(), line.encode() + b"\n")


def timed(task: Task, seconds: float) -> None:
    """Ask one verb, and say how long it took."""
    say("prepares", task=task)
    VERBS[task.verb](Case(task.kind, COMPILING, task.seed), seconds)()
    compiled: list[Any] = [None]
    while compiled:  # compiling has no limit: what had to compile is asked again
        call = VERBS[task.verb](Case(*_drawn_by(task)), seconds)
        say("begins")
        with install_recorder("numba:compile") as recorder:
            wall, cpu = time.perf_counter() - queued(), time.process_time()
            call()
            wall, cpu = time.perf_counter() - queued() - wall, time.process_time() - cpu
        compiled = recorder.buffer
    say("ends", wall=wall, cpu=cpu, memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def queued() -> float:
    """Return for how many seconds this thread has waited for a processor; 0 if Linux has no count.

    A child has one thread, so a machine that other work keeps busy fails no verb.
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _drawn_by(task: Task) -> tuple[str, int, int]:
    return task.kind, task.size, task.seed


def judged(task: Task) -> None:
    """Judge one graph, and say what is wrong."""
    say("prepares", task=task)
    say("ends", wrong=list(JUDGES[task.verb](Case(*_drawn_by(task)))))


def interrupted(task: Task) -> None:
    """Repeat a verb until Ctrl-C comes."""
    say("prepares", task=task)
    call = VERBS[task.verb](Case(*_drawn_by(task)), 60.0)
    VERBS[task.verb](Case(task.kind, COMPILING, task.seed), 1.0)()
    received, signalled = socket.socketpair()
    for end in (received, signalled):
        end.setblocking(False)
    before = signal.set_wakeup_fd(signalled.fileno())  # says so whoever handles the signal
    try:
        say("begins")
        came = False
        while not came:
            call()
            came = bool(select.select([received], [], [], 0.0)[0])
            say("returned", signalled=came)
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        signal.set_wakeup_fd(before)
        received.close()
        signalled.close()
    sys.stdin.readline()


def child(tasks: list[Task], seconds: float, share: float) -> None:
    """Do tasks in turn, those of later seeds as long as there is time."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs may ignore it
    begin = time.monotonic()
    for task in tasks:
        if len(tasks) > 1 and task.seed >= LEAST and time.monotonic() - begin > share:
            return
        try:
            if task.interrupted:
                interrupted(task)
            elif task.verb in JUDGES:
                judged(task)
            else:
                timed(task, seconds)
        except Exception as error:
            say("raised", error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())


# -------------------------------------------------------------------- the parent


class Child:
    """A child process and what it says."""

    def __init__(self, tasks: list[Task], seconds: float, share: float) -> None:
        self.errors: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by stop
        environment = {**os.environ, "MALLOC_PERTURB_": "165", "LPSMAP_COMPILE_AFTER": "0"}
        environment |= {"LPSMAP_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        given = json.dumps([tasks, seconds, share])
        self.process = subprocess.Popen(
            PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            bufsize=0,
        )
        self._rest = b""
        self.tell(given)

    def tell(self, line: str) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Return what it says next; an empty word at its end, None if nothing comes in time."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = max(until - time.monotonic(), 0.0)
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            if not got:
                self.process.wait()
                return {"word": ""}
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> str:
        """End it, and return what it wrote of where it was."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace")
        self.errors.close()
        return text[-4000:]


class Job:
    """The tasks of one child, and of those that take its place."""

    def __init__(self, tasks: list[Task], slack: float, share: float) -> None:
        self.tasks, self.slack, self.share = tasks, slack, share
        self.failures: list[Failure] = []
        self.records: list[dict[str, Any]] = []
        self.rng = np.random.default_rng(tasks[0].seed)

    def run(self) -> Job:
        """Do all tasks."""
        left = self.tasks
        while left:
            process = Child(left, SECONDS, self.share)
            try:
                done = self._listen(process, left)
            finally:
                trace = process.stop()
            if self.failures and self.failures[-1].trace == "?":
                self.failures[-1] = self.failures[-1]._replace(trace=trace)
            left = left[done:]
        return self

    def _listen(self, process: Child, tasks: list[Task]) -> int:
        """Follow a child until it ends, and return how many tasks are behind it."""
        done, patience = 0, COMPILED
        while True:
            heard = process.hear(patience * self.slack)
            task = tasks[min(done, len(tasks) - 1)]
            if heard is None:
                self._fail(task, f"hangs: no answer within {patience * self.slack:.0f} s", "?")
                return done + 1
            if heard["word"] == "":
                code = process.process.returncode
                if code == 0:
                    return len(tasks)
                died = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                self._fail(task, f"the process died: {died}", "?")
                return done + 1
            if heard["word"] == "begins":
                patience = SECONDS + KILLED
                if task.interrupted:
                    heard = self._interrupt(process, task)
                    if heard is None:
                        return done + 1
            if heard["word"] == "prepares":
                patience = COMPILED
            if heard["word"] in ("ends", "raised"):
                self._record(task, heard)
                done += 1

    def _record(self, task: Task, heard: dict[str, Any]) -> None:
        self.records.append({**task._asdict(), **heard, "trace": ""})
        if heard["word"] == "raised":
            self._fail(task, heard["error"], heard["trace"])
        for wrong in heard.get("wrong", []):
            self._fail(task, wrong)
        wall, cpu = heard.get("wall", 0.0), heard.get("cpu", 0.0)
        if wall > (SECONDS + LATE) * self.slack:
            self._fail(task, f"took {wall:.1f} s, {cpu:.1f} s of them on a processor")

    def _fail(self, task: Task, what: str, trace: str = "") -> None:
        self.failures.append(Failure(task, what, trace))

    def _interrupt(self, process: Child, task: Task) -> dict[str, Any] | None:
        """Send Ctrl-C, judge the answer, and let the child go on; None if it has to be killed."""
        until = time.monotonic() + self.rng.uniform() ** 2
        while (left := until - time.monotonic()) > 0.0:
            heard = process.hear(left)
            if heard is not None and heard["word"] not in ("returned", "begins"):
                self._fail(task, f"ended before Ctrl-C: {heard}", "?")
                return None
        sent = time.monotonic()
        process.process.send_signal(signal.SIGINT)
        while True:
            heard = process.hear(KILLED * self.slack)
            if heard is None or heard["word"] == "":
                self._fail(task, f"died of Ctrl-C or did not answer: {heard}", "?")
                return None
            if heard["word"] == "interrupted" or heard.get("signalled"):
                break
        seconds = heard["at"] - sent
        if seconds > ANSWERED * self.slack:
            self._fail(task, f"answered Ctrl-C after {seconds:.1f} s")
        if heard["word"] == "returned" and task.verb not in BEST_SO_FAR:
            self._fail(task, "swallowed Ctrl-C")
        process.tell("")
        return {"word": "ends", "answer": heard["word"], "answered": seconds}


# -------------------------------------------------------------------- the run


def jobs(
    kinds: list[str], sizes: list[int], verbs: list[str], seeds: list[int], slack: float
) -> Iterator[Job]:
    """Yield all that a sweep consists of, the longest first."""
    for size in sorted({*sizes}, reverse=True):
        for kind in kinds:
            timed = [Task(kind, size, verb, s) for s in seeds for verb in verbs if verb in VERBS]
            judged = [Task(kind, size, verb, s) for s in seeds for verb in verbs if verb in JUDGES]
            tasks = timed if size in LARGE else []
            tasks += judged if size in SMALL else []
            if tasks:
                yield Job(tasks, slack, SHARE.get(size, 10.0))


def interrupts(kinds: list[str], size: int, verbs: list[str], slack: float) -> Iterator[Job]:
    """Yield a job for every type: one Ctrl-C for every verb."""
    for kind in kinds:
        yield Job([Task(kind, size, verb, 0, True) for verb in verbs if verb in VERBS], slack, 0.0)


def sweep(todo: list[Job], workers: int, console: Console) -> list[Job]:
    """Do all jobs, some at a time."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with (
        Progress(
            *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
        ) as progress,
        ThreadPoolExecutor(workers) as pool,
    ):
        shown, failed, done = progress.add_task("sweeping", total=len(todo)), 0, []
        for future in as_completed([pool.submit(job.run) for job in todo]):
            job = future.result()
            done.append(job)
            failed += len(job.failures)
            for failure in job.failures:
                words = f"{failure.task.command()}\n  {failure.what}"
                progress.console.print(words, soft_wrap=True, markup=False, highlight=False)
            progress.update(shown, advance=1, description=f"sweeping, {failed} failed")
    return done


def report(done: list[Job], console: Console) -> bool:
    """Print what failed, write the record, and say whether all went well."""
    failures = [failure for job in done for failure in job.failures]
    records = [record for job in done for record in job.records]
    RECORD.parent.mkdir(exist_ok=True)
    listed = [{**f.task._asdict(), "what": f.what, "trace": f.trace} for f in failures]
    RECORD.write_text(json.dumps({"failures": listed, "records": records}, indent=1))
    table = Table("type", "size", "verb", "seed", "what", title="failures")
    for failure in sorted(failures):
        kind, size, verb, seed, _ = failure.task
        table.add_row(kind, str(size), verb, str(seed), failure.what[:200])
    if failures:
        console.print(table)
        for failure in sorted(failures):
            console.print(failure.task.command(), soft_wrap=True, markup=False, highlight=False)
    took = [r for r in records if "wall" in r]
    slowest = max(took, key=lambda r: float(r["wall"]), default=None)
    console.print(f"{len(records)} answers, {len(failures)} failures; the record is {RECORD}")
    if slowest is not None:
        told = " ".join(str(slowest[key]) for key in ("kind", "size", "verb", "seed"))
        console.print(f"the slowest answer took {slowest['wall']:.2f} s: {told}")
    return not failures


@click.command(context_settings={"show_default": True})
@click.option("--only", multiple=True, help="One type, as failures name it; can be repeated.")
@click.option("--size", type=int, multiple=True, help="One size; can be repeated.")
@click.option("--verb", multiple=True, help="One verb or judge; can be repeated.")
@click.option("--seed", type=int, help="One seed.")
@click.option("--interrupt", is_flag=True, help="Send Ctrl-C, and do nothing else.")
@click.option("--slack", default=1.0, help="Multiplies all limits, for loaded machines.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Children at a time.")
@click.option("--child", "as_child", is_flag=True, hidden=True)
def main(
    only: tuple[str, ...],
    size: tuple[int, ...],
    verb: tuple[str, ...],
    seed: int | None,
    interrupt: bool,
    slack: float,
    workers: int,
    as_child: bool,
) -> None:
    """Sweep all factor types, verbs and sizes."""
    if as_child:
        tasks, seconds, share = json.loads(sys.stdin.readline())
        child([Task(*task) for task in tasks], seconds, share)
        return
    kinds, verbs = list(only) or sweep_cases.kinds(), list(verb) or [*VERBS, *JUDGES]
    sizes, seeds = list(size) or [*LARGE, *SMALL], [seed] if seed is not None else [*range(SEEDS)]
    todo = [] if interrupt else list(jobs(kinds, sizes, verbs, seeds, slack))
    if interrupt or (seed is None and max(LARGE) in sizes):
        todo += interrupts(kinds, max(sizes), verbs, slack)
    console = Console(width=150 if not sys.stdout.isatty() else None)
    begin = time.monotonic()
    good = report(sweep(todo, workers, console), console)
    console.print(f"it took {(time.monotonic() - begin) / 60.0:.1f} minutes")
    sys.exit(not good)


if __name__ == "__main__":
    main()
