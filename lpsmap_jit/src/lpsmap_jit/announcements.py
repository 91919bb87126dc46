"""The announcement of a long compilation: one log record in a process.

A kernel is announced if it has to be compiled after compilation and interpreted kernels have taken
`ANNOUNCED_AFTER` seconds in all. The environment variable `QUIET` disables it.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from lpsmap_jit.deadlines import seconds_of_compilation

QUIET = "LPSMAP_QUIET"
"""The environment variable that disables the announcement."""

ANNOUNCED_AFTER = 2.0
"""Seconds of compilation after which it is announced."""

STARTED = (
    "First use: compiling %s, once, for some seconds to a minute; later processes load it. To "
    f"compile ahead, run lpsmap compile; to silence this, set {QUIET}=1."
)
WAITING = "First use: waiting for another process that compiles %s."

_log = logging.getLogger("lpsmap")
_announced: list[str] = []


def announce(function: Any, words: str = STARTED) -> None:
    """Announce that a function is compiled, if that may take long and none was announced before."""
    if not (_announced or is_quiet()) and seconds_of_compilation() >= ANNOUNCED_AFTER:
        _announced.append(f"{function.__module__}.{function.__qualname__}")
        _log.warning(words, *_announced)


def is_quiet() -> bool:
    """Return whether announcements are disabled."""
    return os.environ.get(QUIET, "0") not in ("", "0")
