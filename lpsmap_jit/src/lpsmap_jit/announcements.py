"""The announcement of a long compilation: one log record in a process.

The compiling thread is busy in LLVM, so a timer announces it once compilation has taken `PATIENCE`
seconds in all. The environment variable `QUIET` disables it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["QUIET", "WAITING", "announced", "is_quiet", "watch"]

QUIET = "LPSMAP_QUIET"
"""The environment variable that disables the announcement."""

PATIENCE = 2.0
"""Seconds of compilation after which it is announced."""

STARTED = (
    "First use: compiling %s, once, for some seconds to a minute; later processes load it. To "
    f"compile ahead, run lpsmap compile; to silence this, set {QUIET}=1."
)
WAITING = "First use: waiting for another process that compiles %s."

_log = logging.getLogger("lpsmap")


class _Announcement:
    """The announcement of this process. One thread at a time compiles."""

    def __init__(self) -> None:
        self.function: Any = None
        """The function that is compiled, which may compile others."""
        self._timer: threading.Timer | None = None
        self._seconds, self._begin = 0.0, 0.0
        self._made = False

    def watch(self, words: str) -> None:
        """Start the timer, unless it runs or has announced a compilation."""
        if self.function is None or self._timer is not None or self._made:
            return
        self._begin = time.monotonic()
        left = max(PATIENCE - self._seconds, 0.0)
        self._timer = threading.Timer(left, self._make, [words, self.function])
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Stop the timer."""
        self.function = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join(1.0)  # what follows may fork
            self._timer = None
            self._seconds += time.monotonic() - self._begin

    def _make(self, words: str, function: Any) -> None:
        self._made = True
        _log.warning(words, f"{function.__module__}.{function.__qualname__}")


_announcement = _Announcement()


@contextmanager
def announced(function: Any) -> Iterator[None]:
    """Announce the compilation of a function in a block if it takes long after `watch`.

    Blocks may be nested, but only one thread at a time may be in one.
    """
    if _announcement.function is not None:
        yield
        return
    _announcement.function = function
    try:
        yield
    finally:
        _announcement.end()


def is_quiet() -> bool:
    """Return whether announcements are disabled."""
    return os.environ.get(QUIET, "0") not in ("", "0")


def watch(words: str = STARTED) -> None:
    """Watch the compilation from now on: so far the function might have been loaded."""
    if not is_quiet():
        _announcement.watch(words)
