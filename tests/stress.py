"""Solve random graphs for a time, and hold every answer against independent judges.

``python tests/stress.py --minutes 30`` draws graphs of all installed factor types: masks, lengths,
negations, ties, forbidden variables, duplicates, contradictions, at score scales from 1e-8 to 1e8.
`stress_judging` says what is wrong about a graph. It ends with exit code 1 if an answer is wrong,
if a warning has no status that explains it, if a graph takes more than a minute, or if a process
dies: graphs are solved in child processes. What it prints about a failure names the seed; ``--only
SEED`` repeats it.

Every twentieth graph has up to 2,000 slots: `stress_large` judges it by duality.

Masks are also drawn as large numbers, which forbid no more than they outweigh, scales up to
1e300 and down to 1e-300, and counts beyond all there is to count.
"""

from __future__ import annotations

import collections
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lpsmap import FactorGraph
from lpsmap_core.plugins.registry import installed
from stress_graphs import templates_of
from stress_judging import Report, checked
from stress_large import EVERY, draw_large, wrong_marginals
from sweep_cases import Case


def any_checked(seed: int) -> Report:
    """Check the graph of a seed, which may be large."""
    if seed % EVERY == EVERY - 1:
        return checked_large(seed, wrong_marginals)
    return checked(seed)


def checked_large(seed: int, check: Callable[[Case], tuple[list[str], list[str], int]]) -> Report:
    """Check the large graph of a seed."""
    case = draw_large(seed)
    report = Report(seed, 1.0, f"large: {case}", {case.kind.split()[0]})
    try:
        report.wrong, report.statuses, report.unjudged = check(case)
    except Exception as error:
        report.wrong.append(f"{type(error).__name__}: {error}")
    return report


def describe(report: Report) -> str:
    """Return all that is wrong about a graph."""
    return "\n  ".join([f"seed {report.seed}: {report.described}", *report.wrong])


def compile_all(check: Callable[[int], Report] = any_checked) -> None:
    """Have all kernels compiled, by graphs of every installed type."""
    for seed, kind in enumerate(sorted(installed().factors)):
        check(seed)
        for template in templates_of(kind)[:1]:
            numbers, off = np.arange(template.size), np.zeros(template.size, dtype=bool)
            for generic in (False, True):
                graph = FactorGraph()
                u = graph.variable_from(np.zeros(template.size))
                for _ in range(2):
                    graph.add(template.declare(u, numbers, off, np.zeros(template.shape_v)))
                _ = graph.solve(max_inner_iter=1000 if generic else None).error_bound


def _work(seeds: Connection, check: Callable[[int], Report]) -> None:
    """Check the graphs of the seeds that come, until none comes."""
    compile_all(check)  # nobody should take it for a hang
    seeds.send(None)
    while (seed := seeds.recv()) is not None:
        seeds.send(check(seed))


class Worker:
    """A process that checks one graph after the other, and may die of it."""

    def __init__(self, check: Callable[[int], Report]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, check), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self._busy_before = 0.0
        self.since = np.inf
        """When it began with the seed; it may take long to begin with the first."""

    def give(self, seed: int) -> None:
        """Let it check the graph of a seed."""
        self.seed, self.since, self._busy_before = seed, time.monotonic(), self._busy()
        self.connection.send(seed)

    def is_late(self, patience: float) -> bool:
        """Whether it has worked on its seed for too long, or waited for ten times as long."""
        waited = time.monotonic() - self.since
        return waited > 10.0 * patience or (
            waited > patience and self._busy() - self._busy_before > patience
        )

    def _busy(self) -> float:
        """Return its seconds on a processor, where the system tells; else those that passed."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def take(self) -> Report | None:
        """Return its report, or what its death says of the seed; nothing when it has started."""
        try:
            report: Report | None = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            if self.seed is None:
                raise SystemExit("a process died before its first graph") from None
            died = f"the process died with exit code {self.process.exitcode}"
            report = Report(self.seed, wrong=[died])
        return report

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


class Summary:
    """Counts over all graphs."""

    def __init__(self) -> None:
        self.graphs = self.wrong = self.unjudged = self.differences = 0
        self.gradient_error = 0.0
        self.kinds: collections.Counter[str] = collections.Counter()
        self.by_scale: dict[float, list[Report]] = collections.defaultdict(list)
        self.statuses: collections.Counter[str] = collections.Counter()

    def add(self, report: Report) -> None:
        """Count a graph."""
        self.graphs += 1
        self.wrong += bool(report.wrong)
        self.unjudged += report.unjudged
        self.differences += report.differences
        self.gradient_error = max(self.gradient_error, report.gradient_error)
        self.kinds.update(report.kinds)
        self.statuses.update(report.statuses)
        self.by_scale[report.scale].append(report)

    def print(self, console: Console) -> None:
        """Print the tables."""
        statuses = list(self.statuses)
        table = Table(title=f"{self.graphs} graphs, {sum(self.statuses.values())} components")
        for column in ("scale", "graphs", "wrong", *statuses, "largest error"):
            table.add_column(column, justify="right")
        for scale, reports in sorted(self.by_scale.items()):
            counts = collections.Counter(s for r in reports for s in r.statuses)
            wrong, error = sum(bool(r.wrong) for r in reports), max(r.error for r in reports)
            numbers = [len(reports), wrong, *(counts[s] for s in statuses)]
            table.add_row(f"{scale:g}", *map(str, numbers), f"{error:.1e}")
        console.print(table)
        kinds = Table(title="graphs by factor type")
        for column in ("type", "graphs") * 3:
            kinds.add_column(column)
        cells = [x for kind, n in sorted(self.kinds.items()) for x in (kind, str(n))]
        for i in range(0, len(cells), 6):
            kinds.add_row(*cells[i : i + 6])
        console.print(kinds)
        console.print(
            f"wrong: {self.wrong}; components that the judges could not judge: {self.unjudged}; "
            f"gradients: largest error {self.gradient_error:.1e} against eigenvectors, "
            f"{self.differences} compared with differences"
        )


def reports(
    seeds: Iterator[int],
    n_workers: int,
    patience: float,
    check: Callable[[int], Report] = any_checked,
) -> Iterator[Report]:
    """Yield the reports on seeds as they come; a worker that dies or hangs is replaced."""
    workers = [Worker(check) for _ in range(n_workers)]
    try:
        while True:
            ready: list[Any] = wait([w.connection for w in workers], timeout=1.0)
            for i, worker in enumerate(workers):
                report = worker.take() if worker.connection in ready else None
                if report is None and worker.is_late(patience):
                    hung = f"no answer within {patience:g} s"
                    report = Report(worker.seed or 0, wrong=[hung])
                    worker.stop()
                if report is not None:
                    yield report
                if worker.connection in ready or report is not None:
                    if not worker.process.is_alive():
                        worker.stop()
                        workers[i] = Worker(check)
                    elif (seed := next(seeds, None)) is not None:
                        worker.give(seed)
                    else:
                        return
    finally:
        for worker in workers:
            worker.stop()


def run(found: Iterator[Report], minutes: float) -> Summary:
    """Check graphs until the time is over."""
    summary, begin = Summary(), time.monotonic()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("solving", total=60.0 * minutes)
        for report in found:
            summary.add(report)
            if report.wrong:
                progress.console.print(describe(report), soft_wrap=True, markup=False)
            passed = time.monotonic() - begin
            progress.update(
                task,
                completed=passed,
                description=f"{summary.graphs} graphs, {summary.wrong} wrong",
            )
            if passed > 60.0 * minutes:
                break
    return summary


@click.command(context_settings={"show_default": True})
@click.option("--minutes", type=float, default=30.0, help="How long to go on.")
@click.option("--seed", type=int, default=0, help="Seed of the first graph.")
@click.option("--only", type=int, help="Check the graph of this seed alone, in this process.")
@click.option("--patience", type=float, default=60.0, help="Seconds a graph may take.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Processes that solve.")
def main(minutes: float, seed: int, only: int | None, patience: float, workers: int) -> None:
    """Solve random graphs for a time, and hold every answer against independent judges."""
    if only is not None:
        found = iter([any_checked(only)])
    else:
        found = reports(iter(range(seed, sys.maxsize)), workers, patience)
    summary = run(found, minutes)
    summary.print(Console(width=150))
    sys.exit(1 if summary.wrong else 0)


if __name__ == "__main__":
    main()
