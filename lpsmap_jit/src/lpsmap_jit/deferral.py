"""Deferral of signal handlers while Python code must not raise.

During compilation, LLVM calls back into Python. An exception that a signal handler raises there is
lost, and so is the kernel: this concerns Ctrl-C, and alarms and termination signals with handlers
that raise.
"""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Deferred", "signals"]

signals: Any = import_module("_signal")
"""The implementation of `signal` without enumerations, twenty times as fast."""

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
_NUMBERS = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]
"""Signals that programs commonly handle."""


class Deferred:
    """A block in which signal handlers are deferred to its end, or to that of an inner block.

    It has an effect only in the main thread, which runs handlers.
    """

    def __enter__(self) -> None:
        self._replaced: list[tuple[Any, _DeferredHandler]] = []
        if threading.get_ident() != threading.main_thread().ident:
            return
        for number in _NUMBERS:
            handler = signals.getsignal(number)
            if callable(handler):
                note = (
                    handler
                    if isinstance(handler, _DeferredHandler)
                    else _DeferredHandler(number, handler)
                )
                self._replaced.append((handler, note))
                signals.signal(number, note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _restore(self._replaced)


def _restore(replaced: list[tuple[Any, _DeferredHandler]]) -> None:
    """Restore handlers and call the pending ones, all of them even if one raises."""
    if replaced:
        handler, note = replaced[0]
        try:
            signals.signal(note.number, handler)
            note.deliver()
        finally:
            _restore(replaced[1:])


class _DeferredHandler:
    """A replacement handler that records a signal."""

    def __init__(self, number: int, handler: Any) -> None:
        self.number, self.handler, self.waiting = number, handler, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.waiting = True

    def deliver(self) -> None:
        """Call the original handler if a signal was received."""
        if self.waiting:
            self.waiting = False
            self.handler(self.number, None)
