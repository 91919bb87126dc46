"""Deferral of signal handlers while Python code must not raise.

During compilation, LLVM calls back into Python. An exception that a signal handler raises there is
lost, and so is the kernel: this concerns Ctrl-C, and alarms and termination signals with handlers
that raise.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

signals: Any = import_module("_signal")
"""The implementation of `signal` without enumerations, twenty times as fast."""

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
_NUMBERS = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]
"""Signals that programs commonly handle."""


@contextmanager
def deferred() -> Iterator[None]:
    """Defer signal handlers to the end of a block, or to that of an inner block.

    It has an effect only in the main thread, which runs handlers.
    """
    with ExitStack() as restored:
        if threading.get_ident() == threading.main_thread().ident:
            for number in _NUMBERS:
                handler = signals.getsignal(number)
                if callable(handler):
                    inner = handler.handler if isinstance(handler, _Note) else handler
                    note = _Note(number, inner)
                    restored.callback(note.deliver)
                    restored.callback(signals.signal, number, handler)
                    signals.signal(number, note)
        yield


class _Note:
    """A replacement of a handler, which notes a signal."""

    def __init__(self, number: int, handler: Any) -> None:
        self.number, self.handler, self.waiting = number, handler, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.waiting = True

    def deliver(self) -> None:
        """Call the handler if the signal came."""
        if self.waiting:
            self.handler(self.number, None)
