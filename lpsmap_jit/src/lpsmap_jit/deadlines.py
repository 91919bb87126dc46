"""Deadlines: time limits, without compilation, and Ctrl-C."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Deadline", "compiling", "when_compiled"]


class Deadline:
    """The end of a computation that starts with the construction of this object.

    Parameters
    ----------
    seconds
        Time limit, without the time for compilation; None for no limit.
    within
        Another deadline that also applies.
    """

    def __init__(self, seconds: float | None = None, within: Deadline | None = None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._begin, self._compiled = time.monotonic(), _compiled.seconds
        self._within = within
        self.cut = False
        """Whether it was brought forward by `end`."""

    @property
    def left(self) -> float:
        """Remaining seconds; ``inf`` without a limit."""
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
        """Whether the deadline has passed."""
        return self.left == 0.0

    def end(self) -> None:
        """End the deadline now."""
        self.cut = True


class _Stopwatch:
    """The total seconds of compilation in this process."""

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
    """Count a block as compilation; for one thread at a time, re-entrant."""
    _compiled.start()
    try:
        yield
    finally:
        _compiled.stop()
        for listener in _listeners:
            listener()


def when_compiled(listener: Callable[[], None]) -> None:
    """Register a function to be called after every compilation, in its thread."""
    _listeners.append(listener)
