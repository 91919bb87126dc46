"""Signals where Python must not raise: their handlers wait until that is over.

While a kernel is compiled, LLVM calls Python back, and what a signal's handler raises in there is
lost, and the kernel with it: Ctrl-C, and the alarms of tests and the ends of jobs that raise, too.
"""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Deferred", "signals"]

signals: Any = import_module("_signal")
"""What `signal` is made of: without its enumerations, getting and setting takes a twentieth."""

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
_NUMBERS = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]
"""Signals that programs have handlers for."""


class Deferred:
    """A block at whose end, or at that of such a block inside it, handlers of signals are called.

    Does nothing in other threads than the main one, which alone runs handlers.
    """

    def __enter__(self) -> None:
        self._replaced: list[tuple[Any, _Note]] = []
        if threading.get_ident() != threading.main_thread().ident:
            return
        for number in _NUMBERS:
            handler = signals.getsignal(number)
            if callable(handler):
                note = handler if isinstance(handler, _Note) else _Note(number, handler)
                self._replaced.append((handler, note))
                signals.signal(number, note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _give_back(self._replaced)


def _give_back(replaced: list[tuple[Any, _Note]]) -> None:
    """Restore handlers and call those that are wanted, all of them, whatever any of them raises."""
    if replaced:
        handler, note = replaced[0]
        try:
            signals.signal(note.number, handler)
            note.deliver()
        finally:
            _give_back(replaced[1:])


class _Note:
    """Stands in for a handler, and calls it later."""

    def __init__(self, number: int, handler: Any) -> None:
        self.number, self.handler, self.waiting = number, handler, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.waiting = True

    def deliver(self) -> None:
        """Call the handler if it was wanted meanwhile."""
        if self.waiting:
            self.waiting = False
            self.handler(self.number, None)
