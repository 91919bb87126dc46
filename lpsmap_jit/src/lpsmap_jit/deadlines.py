"""Deadlines: time limits for compiled kernels, which Ctrl-C can bring forward."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Deadline:
    """A deadline for a computation that starts when this object is constructed.

    Parameters
    ----------
    seconds
        Time limit, excluding the time for compilation; None for no limit.
    within
        Another deadline that also applies.
    """

    def __init__(self, seconds: float | None = None, within: Deadline | None = None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._begin, self._compiled_before = time.monotonic(), _compilation.seconds
        self._within = within
        self.cut = False
        """Whether `end` was called."""

    @property
    def left(self) -> float:
        """Remaining seconds; ``inf`` without a limit."""
        if self.cut:
            return 0.0
        left = math.inf if self._within is None else self._within.left
        if self._seconds < math.inf:
            spent = time.monotonic() - self._begin
            spent -= min(spent, _compilation.seconds - self._compiled_before)
            left = min(left, max(self._seconds - spent, 0.0))
        return left

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return self.left == 0.0

    def end(self) -> None:
        """Make the deadline pass now."""
        self.cut = True


class _Stopwatch:
    """A stopwatch for all compilation in this process, which may be nested."""

    lock = threading.RLock()
    seconds = 0.0
    """Seconds of the compilations that have ended."""
    begin: float | None = None
    """The start of the one in progress."""

    @property
    def running(self) -> float:
        """Seconds since the start of the compilation in progress; 0 without one."""
        begin = self.begin
        return 0.0 if begin is None else time.monotonic() - begin


_compilation = _Stopwatch()
_listeners: list[Callable[[], None]] = []


@contextmanager
def compiling() -> Iterator[None]:
    """Count the time of a block as compilation, or as that of kernels that are not compiled yet.

    Blocks may be nested. One thread at a time is in one; others wait.
    """
    with _compilation.lock:
        is_outer = _compilation.begin is None
        try:
            if is_outer:
                _compilation.begin = time.monotonic()
            yield
        finally:
            if is_outer:
                _compilation.seconds += _compilation.running
                _compilation.begin = None
            for listener in _listeners:
                listener()


def seconds_in_compilation() -> float:
    """Return the seconds since the start of the block of `compiling` in progress, 0 without one."""
    return _compilation.running


def seconds_of_compilation() -> float:
    """Return the seconds of all blocks of `compiling` so far."""
    return _compilation.seconds + _compilation.running


def when_compiled(listener: Callable[[], None]) -> None:
    """Register a function to be called after every compilation, in the thread that compiled."""
    _listeners.append(listener)
