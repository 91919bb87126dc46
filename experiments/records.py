"""Records of runs: JSON files with settings, results and their origin."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments import ROOT

__all__ = ["Record", "read_records", "this_origin", "write_atomically"]

NOT_RECORDS = ":(exclude)experiments/records"
"""The records, which full runs replace themselves."""


@lru_cache(maxsize=1)
def this_origin() -> dict[str, Any]:
    """Return the commit, date, machine and command of this process."""
    return {
        "commit": _commit(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "command": " ".join(["python -m experiments", *sys.argv[1:]]),
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
        Commit, date, machine and command of the run.
    """

    experiment: str
    row: str
    size: str
    settings: dict[str, Any]
    complete: bool
    result: dict[str, Any]
    origin: dict[str, Any] = field(default_factory=this_origin)

    @property
    def file_name(self) -> str:
        """Name of the file in its folder."""
        return f"{self.experiment}-{self.row}.json"

    def write(self, folder: Path) -> None:
        """Write the record to a folder atomically."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        write_atomically(folder / self.file_name, text.encode())

    def answers(self, size: str, settings: Mapping[str, Any]) -> bool:
        """Return whether this is the complete record of a run with these settings."""
        same = self.settings == json.loads(json.dumps(settings))
        return self.complete and self.size == size and same


def read_records(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the records in files.

    Raises
    ------
    ValueError
        If a file is not a record; the message names it.
    """
    for path in paths:
        try:
            yield Record(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: not a record of an experiment ({error}).") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file, then move it to its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    beside.replace(path)
