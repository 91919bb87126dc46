"""When work has to end: limits of time, which compiling does not count for, and Ctrl-C."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Deadline", "compiling", "when_compiled"]


class Deadline:
    """The end of a stretch of work, which begins when this is made.

    Parameters
    ----------
    seconds
        How long it may take, apart from what the process compiles meanwhile; None for no limit.
    within
        Another deadline, which is this one's, too, if it comes first.
    """

    def __init__(self, seconds: float | None = None, within: Deadline | None = None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._begin, self._compiled = time.monotonic(), _compiled.seconds
        self._within = within
        self.cut = False
        """Whether it came early, by `end`."""

    @property
    def left(self) -> float:
        """Seconds that are left; ``inf`` if there is no limit."""
        if self.cut:
            return 0.0
        left = math.inf if self._within is None else self._within.left
        if self._seconds < math.inf:
            spent = time.monotonic() - self._begin
            spent -= min(spent, _compiled.seconds - self._compiled)
            left = min(left, max(self._seconds - spent, 0.0))
        return left

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left == 0.0

    def end(self) -> None:
        """Let it be now."""
        self.cut = True


class _Stopwatch:
    """The seconds in which this process compiled."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._begin = 0.0, 0, 0.0

    def start(self) -> None:
        if self._depth == 0:
            self._begin = time.monotonic()
        self._depth += 1

    def stop(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.monotonic() - self._begin


_compiled = _Stopwatch()
_listeners: list[Callable[[], None]] = []


@contextmanager
def compiling() -> Iterator[None]:
    """Let a block be a stretch of compiling; one thread at a time may, also within another."""
    _compiled.start()
    try:
        yield
    finally:
        _compiled.stop()
        for listener in _listeners:
            listener()


def when_compiled(listener: Callable[[], None]) -> None:
    """Let a function be called in the thread that compiled, after every stretch."""
    _listeners.append(listener)
