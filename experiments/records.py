"""Records of runs: files of JSON lines, one for each experiment, with a line for each row."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments import ROOT

__all__ = ["Record", "find_record", "read_records", "this_origin", "write_atomically"]

SUFFIX = ".jsonl"

DIGITS = 6
"""Significant digits of recorded numbers."""

NOT_RECORDS = ":(exclude)experiments/records"
"""The records, which full runs replace themselves."""


@lru_cache(maxsize=1)
def this_origin() -> dict[str, Any]:
    """Return the commit, date, machine and command of this process, and the clock of its times."""
    return {
        "commit": _commit(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "command": " ".join(["python -m experiments", *sys.argv[1:]]),
        "clock": "processor",
    }


def _commit() -> str:
    """Return the commit of the checkout, marked if tracked files, records aside, differ from it."""
    try:
        commit = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", NOT_RECORDS)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


@dataclass(frozen=True)
class Record:
    """One run of an experiment.

    Attributes
    ----------
    experiment, row
        Names; the row's is unique within the experiment.
    size
        "toy", "small" or "full".
    settings
        Everything that the result depends on.
    complete
        Whether the run ended. An incomplete result has the learning curve so far.
    result
        The measurements.
    origin
        Commit, date, machine and command of the run; and the clock of its seconds, that of the
        processor, or without one that of the wall on a busy machine.
    """

    experiment: str
    row: str
    size: str
    settings: dict[str, Any]
    complete: bool
    result: dict[str, Any]
    origin: dict[str, Any] = field(default_factory=this_origin)

    def write(self, folder: Path) -> None:
        """Write the record to the file of its experiment atomically, in place of an older one."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.experiment}{SUFFIX}"
        with _locked(folder):
            kept = {record.row: record for record in _records_in(path)} if path.exists() else {}
            kept[self.row] = self
            lines = [kept[row].line() for row in sorted(kept)]
            write_atomically(path, "".join(lines).encode())

    def line(self) -> str:
        """Return the record as a line of JSON."""
        text = json.dumps(_short(asdict(self)), ensure_ascii=False, separators=(",", ":"))
        return f"{text}\n"

    @property
    def clock(self) -> str:
        """The clock of its seconds: "processor" or "wall"."""
        return str(self.origin.get("clock", "wall"))

    @property
    def hours(self) -> float:
        """Hours of the training so far, evaluation aside."""
        curve = self.result.get("curve") or [{"seconds": 0.0}]
        return float(curve[-1]["seconds"]) / 3600

    def answers(self, size: str, settings: Mapping[str, Any]) -> bool:
        """Return whether this is the complete record of a run with these settings."""
        return self.complete and self.has_settings(size, settings)

    def has_settings(self, size: str, settings: Mapping[str, Any]) -> bool:
        """Return whether the run has these settings, whether or not it ended."""
        return self.size == size and self.settings == json.loads(json.dumps(settings))


def read_records(folder: Path) -> Iterator[Record]:
    """Yield the records of all experiments in a folder.

    Raises
    ------
    ValueError
        If a line is not a record; the message names it.
    """
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        yield from _records_in(path)


def find_record(folder: Path, experiment: str, row: str) -> Record | None:
    """Return the record of a row, or None if there is none."""
    path = folder / f"{experiment}{SUFFIX}"
    found = _records_in(path) if path.exists() else iter(())
    return next((record for record in found if record.row == row), None)


def _records_in(path: Path) -> Iterator[Record]:
    # not splitlines: words of a treebank may have separators of lines other than \n
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], start=1):
        try:
            yield Record(**json.loads(line))
        except (TypeError, ValueError) as error:
            message = f"{path}, line {number}: not a record of an experiment ({error})."
            raise ValueError(message) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing records to a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _short(value: Any) -> Any:
    """Return a value of JSON with all floats rounded."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _short(entry) for key, entry in value.items()}
    return [_short(entry) for entry in value] if isinstance(value, list | tuple) else value


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file, then move it to its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    beside.replace(path)
