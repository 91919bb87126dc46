"""Rows of tables, and a runner that resumes killed runs and shows progress."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.pages import PAPERS, Page, Verdict
from experiments.records import Record, find_record, write_atomically

__all__ = ["SIZES", "Experiment", "Job", "Result", "Row", "Runner"]

SIZES = ("toy", "small", "full")

Result: TypeAlias = dict[str, Any]

BETWEEN_CHECKPOINTS = 60.0
"""Seconds between checkpoints: the maximum loss of a kill, beside the current step."""


@dataclass(frozen=True)
class Row:
    """A run for a row of a table, or a part of one.

    Attributes
    ----------
    experiment, name
        See `Record`.
    settings
        A dataclass: everything that the result depends on.
    run
        Called with a job; returns the measurements for JSON.
    """

    experiment: str
    name: str
    settings: Any
    run: Callable[[Job], Result] = field(compare=False)


@dataclass(frozen=True)
class Experiment:
    """An experiment: its rows, and its section of a page.

    Attributes
    ----------
    name
        The name on the command line.
    rows
        Called with a size and the number of seeds, or None for the default.
    report
        Called with the experiment's records and the folder of figures; returns Markdown.
    page
        The page that has its section.
    verdicts
        Called with the experiment's records at full size; returns what the page says about each
        table and figure of the papers before any number.
    """

    name: str
    rows: Callable[[str, int | None], list[Row]]
    report: Callable[[list[Record], Path], str]
    page: Page = PAPERS
    verdicts: Callable[[list[Record]], list[Verdict]] = lambda records: []


class Job:
    """A running row: its data, checkpoint and progress.

    Parameters
    ----------
    runner
        The runner.
    row
        The row.
    show
        Called with the finished share, and a short text.
    """

    def __init__(self, runner: Runner, row: Row, show: Callable[[float, str], None]) -> None:
        self.runner, self.row, self.show = runner, row, show
        self.data, self.size = runner.data, runner.size
        self._file = runner.out / "checkpoints" / f"{row.experiment}-{row.name}.pt"
        self._saved = time.monotonic()

    def result_of(self, row: Row) -> Result:
        """Return the result of another row, running it first if needed."""
        return self.runner.result_of(row)

    def keep(self, result: Result) -> None:
        """Write the incomplete record of the run with its results so far."""
        self.runner.record(self.row, result, complete=False)

    def load(self) -> Mapping[str, Any] | None:
        """Return the last checkpoint; None without one, or if its settings differ."""
        if not self._file.is_file():
            return None
        kept: dict[str, Any] = torch.load(self._file, weights_only=True)
        return kept["state"] if kept["settings"] == repr(self.row.settings) else None

    def save(self, state: Callable[[], Mapping[str, Any]], *, now: bool = False) -> None:
        """Write a checkpoint if it is due, or if `now` is true."""
        if now or time.monotonic() - self._saved > BETWEEN_CHECKPOINTS:
            buffer = io.BytesIO()
            torch.save({"settings": repr(self.row.settings), "state": state()}, buffer)
            write_atomically(self._file, buffer.getvalue())
            self._saved = time.monotonic()

    def close(self) -> None:
        """Remove the checkpoint of a finished run."""
        self._file.unlink(missing_ok=True)


class Runner:
    """Runs rows without a complete record, and writes their records.

    Parameters
    ----------
    data
        Folder of the data sets.
    out
        Folder of the records.
    size
        One of `SIZES`.
    console
        The console for progress.
    """

    def __init__(self, data: Path, out: Path, size: str, console: Console) -> None:
        self.data, self.out, self.size = data, out, size
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[words]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Runner:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def result_of(self, row: Row) -> Result:
        """Return the result of a row; run it if it has no complete record."""
        found = find_record(self.out, row.experiment, row.name)
        if found is not None and found.answers(self.size, asdict(row.settings)):
            return found.result
        title = f"{row.experiment}-{row.name}"
        task = self._progress.add_task(title, total=1.0, words="")
        latest = ""

        def show(done: float, words: str) -> None:
            nonlocal latest
            self._progress.update(task, completed=done, words=words)
            if words != latest and not self._console.is_terminal:
                self._console.print(f"{title}: {done:.0%}, {words}", soft_wrap=True)
            latest = words

        job = Job(self, row, show)
        result = row.run(job)
        self.record(row, result, complete=True)
        job.close()
        show(1.0, "done")
        return result

    def record(self, row: Row, result: Result, *, complete: bool) -> None:
        """Write the record of a row."""
        settings = asdict(row.settings)
        Record(row.experiment, row.name, self.size, settings, complete, result).write(self.out)
