"""Results as JSON lines in a growing file, so that a run can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

LONGEST_LINE = 2**28
"""Maximum bytes of a line."""

KEY = "path"
"""The field that names the subject of a line."""

BEGIN = b'{"file": "'
"""The first bytes of a line of `lpsmap decode`; a file that ends otherwise is not a journal."""


class JournalError(ValueError):
    """A file is not a journal, or another process is writing it."""


class Journal:
    """A file with one line per result; a context manager.

    Every line is appended by one system call. When the file is opened again, a partial last line
    and results that are errors are dropped: they are computed again.

    Parameters
    ----------
    path
        The file; it is created if it does not exist.
    task
        The task of all subjects; a file of another task raises an error.

    Attributes
    ----------
    done
        The names of the subjects with results.
    """

    def __init__(self, path: Path, task: str) -> None:
        self._path, self._task = path, task
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self.done: set[str] = set()

    def __enter__(self) -> Journal:
        if self._path.exists() and not self._path.is_file():
            raise JournalError(
                f"{self._path}: not a regular file. Choose another --out, or omit it."
            )
        if not self._path.parent.is_dir():
            raise JournalError(f"{self._path}: the folder does not exist. Create it first.")
        try:
            self._lock.acquire(timeout=0)
        except (Timeout, OSError):  # older releases of filelock raise the OSError itself
            if not Path(self._lock.lock_file).exists():
                raise JournalError(
                    f"{self._path}: no file can be created in its folder. Choose another --out."
                ) from None
            raise JournalError(
                f"{self._path}: another process is writing it. Wait for it, or choose another "
                "--out."
            ) from None
        try:
            self._recover()
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)
        self._lock.release()

    def append(self, result: dict[str, Any]) -> None:
        """Append a result; if the disk is full, write no part of it."""
        line = (json.dumps(result, allow_nan=False) + "\n").encode()
        end = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(f"{self._path}: the disk is full. Make room, and run again.")
        except OSError:
            os.ftruncate(self._file, end)
            raise
        self.done.add(result[KEY])

    def _recover(self) -> None:
        """Read the finished results; drop errors and a partial last line."""
        if not self._path.exists():
            return
        dropped, partial = set[int](), 0
        for number, line in enumerate(_lines(self._path), start=1):
            result = _parsed(line)
            if partial or (result is None and not BEGIN.startswith(line.strip()[: len(BEGIN)])):
                raise JournalError(
                    f"{self._path}: line {partial or number} is not a result; expected JSON lines "
                    "of `lpsmap decode`. Choose another --out."
                )
            if result is None or "error" in result:
                partial = number if result is None else 0
                dropped.add(number)
                continue
            if result.get("task") != self._task:
                raise JournalError(
                    f"{self._path}: has results of the task {result.get('task')!r}; expected "
                    f"{self._task!r}. Choose another --out, or the same --task."
                )
            self.done.add(result[KEY])
        if dropped:
            _replace_without(self._path, dropped)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a result; None if the line is partial or not a result."""
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = line.endswith(b"\n") and isinstance(result, dict) and isinstance(result.get(KEY), str)
    return result if whole else None


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, and pieces of lines that are too long for a result."""
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            yield line


def _replace_without(path: Path, dropped: Set[int]) -> None:
    """Replace a file atomically by its other lines, which are counted from 1."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with beside.open("wb") as file:
        file.writelines(
            line for number, line in enumerate(_lines(path), start=1) if number not in dropped
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
