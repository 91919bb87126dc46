"""Results as JSON lines in a file that grows, so that a run can be gone on with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

__all__ = ["Journal", "JournalError"]

KEY = "file"
"""What names the subject of a line."""


class JournalError(ValueError):
    """A file is no journal, or is being written by another process."""


class Journal:
    """A file of results, a line for each; used as a context manager.

    Every line is written by one call at the end of the file. What a crash leaves of the last one is
    dropped when the file is opened again, as are results that are errors: they are due once more.

    Parameters
    ----------
    path
        The file; it is made if it does not exist.
    task
        What was asked of all subjects; a file of another task is refused.

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
            raise JournalError(f"{self._path}: is no regular file. Choose another --out, or none.")
        try:
            self._lock.acquire(timeout=0)
        except (Timeout, OSError):  # older releases of filelock raise what the system says
            if not Path(self._lock.lock_file).exists():
                raise JournalError(
                    f"{self._path}: no file can be made in its folder. Choose another --out."
                ) from None
            raise JournalError(
                f"{self._path}: another process writes it. Wait for it, or choose another --out."
            ) from None
        try:
            self._recover()
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        os.close(self._file)
        self._lock.release()

    def append(self, result: dict[str, Any]) -> None:
        """Write a result; if the disk is full, nothing of it."""
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
        """Read what is done; leave out what is not to be kept."""
        if not self._path.exists():
            return
        lines = self._path.read_bytes().splitlines(keepends=True)
        kept = []
        for number, line in enumerate(lines, start=1):
            result = _parsed(line)
            if result is None and number < len(lines):
                raise JournalError(
                    f"{self._path}: line {number} is no result; expected JSON lines of `lpsmap "
                    "decode`. Choose another --out."
                )
            if result is None or "error" in result:
                continue
            if result.get("task") != self._task:
                raise JournalError(
                    f"{self._path}: has results of the task {result.get('task')!r}; expected "
                    f"{self._task!r}. Choose another --out, or the same --task."
                )
            kept.append(line)
            self.done.add(result[KEY])
        if len(kept) < len(lines):
            _replace(self._path, b"".join(kept))


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a result; None if the line holds none, or was cut short."""
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = line.endswith(b"\n") and isinstance(result, dict) and isinstance(result.get(KEY), str)
    return result if whole else None


def _replace(path: Path, content: bytes) -> None:
    """Replace a file, so that at any time one of the two is whole."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
