"""Ctrl-C where Python must not raise: it waits until that is over.

While a kernel is compiled, LLVM calls Python back, and what a signal's handler raises in there is
lost, and the kernel with it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Deferred", "signals"]

signals: Any = import_module("_signal")
"""What `signal` is made of: without its enumerations, getting and setting takes a twentieth."""

_INTERRUPT = int(signal.SIGINT)


class Deferred:
    """A block at whose end, or at that of such a block inside it, the handler of SIGINT is called.

    Does nothing in other threads than the main one, which alone runs handlers.
    """

    def __enter__(self) -> None:
        self._handler: Any = None
        handler = signals.getsignal(_INTERRUPT)
        if callable(handler) and threading.get_ident() == threading.main_thread().ident:
            self._note = handler if isinstance(handler, _Note) else _Note(handler)
            self._handler = handler
            signals.signal(_INTERRUPT, self._note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            signals.signal(_INTERRUPT, self._handler)
            self._note.deliver()


class _Note:
    """Stands in for a handler, and calls it later."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler, self.waiting = handler, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.waiting = True

    def deliver(self) -> None:
        """Call the handler if it was wanted meanwhile."""
        if self.waiting:
            self.waiting = False
            self.handler(_INTERRUPT, None)
