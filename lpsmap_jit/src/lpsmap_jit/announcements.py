"""Announcements of compilation that takes seconds: one log record, and a line on a terminal.

A thread watches the compilation, since the compiling thread is busy in LLVM. After `PATIENCE`
seconds it logs, once in a process, that this is a first use, and what is compiled; on a terminal it
shows a line with the progress. Short compilations that follow each other within `PAUSE` seconds
count as one. The variable `QUIET` disables all of it.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["QUIET", "announced", "is_quiet", "waiting", "watch"]

QUIET = "LPSMAP_QUIET"
"""The environment variable that disables announcements."""

PATIENCE = 2.0
"""Seconds of compilation after which it is announced."""

PAUSE = 1.0
"""Seconds without compilation after which the next one counts anew."""

REFRESHED = 0.5
"""Seconds after which the line on a terminal is written again."""

STARTED = (
    "First use: compiling %s, once, for 20 s to a minute; later processes load it. To compile "
    f"ahead, run lpsmap compile; to silence this, set {QUIET}=1."
)
WAITING = "First use: waiting for another process that compiles %s."

_log = logging.getLogger("lpsmap")


class _Compilation:
    """The compilations of this process that follow each other closely, one thread at a time."""

    def __init__(self) -> None:
        self.functions: list[Any] = []
        """Those that are being compiled: each is called by the one before."""
        self.finished: set[Any] = set()
        """All functions that are compiled."""
        self.waits = False
        """Whether another process compiles the last of them."""
        self._begin, self._ended = 0.0, 0.0
        self._unannounced = 0.0
        """Seconds of compilation without a pause, before the current one."""
        self._announced = False
        self._is_first = True
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None

    def begin(self) -> None:
        """Start the watch over the first function, unless it is being watched."""
        if self._watcher is not None or not self.functions:
            return
        self._begin = time.monotonic()
        if self._begin - self._ended > PAUSE:
            self._unannounced = 0.0
        self._over = threading.Event()
        watched = self._over, self.functions[0]
        self._watcher = threading.Thread(target=self._watch, args=watched, daemon=True)
        self._watcher.start()

    def end(self) -> None:
        """End the watch, if there is one."""
        if self._watcher is None:
            return
        self._over.set()
        self._watcher.join(PAUSE)  # what follows may write to the terminal, or fork
        self._watcher = None
        self._ended = time.monotonic()
        self._unannounced += self._ended - self._begin
        if self._announced:
            self._unannounced, self._announced = 0.0, False

    def _watch(self, over: threading.Event, first: Any) -> None:
        """Announce the compilation of a function once it takes long, and show how it goes on."""
        if over.wait(max(PATIENCE - self._unannounced, 0.0)):
            return
        level = logging.WARNING if self._is_first else logging.INFO
        _log.log(level, WAITING if self.waits else STARTED, _name(first))
        self._announced, self._is_first = True, False
        if sys.stderr is not None and sys.stderr.isatty():
            self._show(over, first)

    def _show(self, over: threading.Event, first: Any) -> None:
        """Write a line until the compilation ends, and then remove it."""
        while not over.wait(REFRESHED):
            seconds = time.monotonic() - self._begin
            words = "waits for another process" if self.waits else self._left(first)
            _write(f"\r\033[Kcompiling {_name(first)}: {seconds:.0f} s, {words}")
        _write("\r\033[K")

    def _left(self, first: Any) -> str:
        """Describe what is left of the compilation of a function."""
        called = _called_by(first)
        n_left = len(called - self.finished)
        if n_left > 0:
            return f"{n_left} of the {len(called)} functions that it calls are left"
        return "its optimisation is left"


_compilation = _Compilation()


@contextmanager
def announced(function: Any) -> Iterator[None]:
    """Announce the compilation of a function in a block if it takes long after `watch`.

    Blocks may be nested, but only one thread at a time may be in one.
    """
    functions, depth = _compilation.functions, len(_compilation.functions)
    try:
        functions.append(function)
        yield
    finally:
        del functions[depth:]
        _compilation.finished.add(function)
        if depth == 0:
            _compilation.end()


def is_quiet() -> bool:
    """Return whether announcements are disabled."""
    return os.environ.get(QUIET, "0") not in ("", "0")


def watch() -> None:
    """Watch the compilation from now on: so far the function might have been loaded."""
    if not is_quiet():
        _compilation.begin()


@contextmanager
def waiting() -> Iterator[None]:
    """Announce that another process compiles the function, and not this one."""
    _compilation.waits = True
    watch()
    try:
        yield
    finally:
        _compilation.waits = False


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _called_by(function: Any) -> set[Any]:
    """Return the functions that a function may call, directly and indirectly, by their names."""
    todo: list[Any] = [function]
    found: set[Any] = set()
    while todo:
        some = todo.pop()
        known = {**some.__globals__, **inspect.getclosurevars(some).nonlocals}
        names = (*some.__code__.co_names, *some.__code__.co_freevars)
        called = {getattr(known.get(name), "py_func", None) for name in names} - {None}
        todo += called - found
        found |= called
    return found - {function}


def _write(words: str) -> None:
    with suppress(OSError, ValueError):  # closed meanwhile
        sys.stderr.write(words)
        sys.stderr.flush()
