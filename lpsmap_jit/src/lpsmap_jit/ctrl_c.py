"""Ctrl-C as the end of a time limit rather than an exception."""

from __future__ import annotations

import threading
from types import FrameType, TracebackType
from typing import Any

from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.deferral import signals
from lpsmap_jit.interrupts import renew_deadline

__all__ = ["ended_by_ctrl_c", "raised_by_ctrl_c"]


def ended_by_ctrl_c(deadline: Deadline) -> _Handled:
    """Let the first Ctrl-C in a block end a deadline and running kernels; a second one raises.

    User-installed handlers are left alone, and so are threads other than the main one.

    Parameters
    ----------
    deadline
        The deadline; afterwards ``deadline.cut`` tells whether Ctrl-C was pressed.
    """
    return _Handled(_CtrlC(deadline), signals.default_int_handler)


def raised_by_ctrl_c() -> _Handled:
    """Let Ctrl-C raise within `ended_by_ctrl_c`, for third-party code without deadlines."""
    before = signals.getsignal(signals.SIGINT)
    return _Handled(signals.default_int_handler, before if isinstance(before, _CtrlC) else None)


class _CtrlC:
    """A handler that ends a deadline the first time."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._deadline.cut:
            raise KeyboardInterrupt
        self._deadline.end()
        renew_deadline()


class _Handled:
    """A block with a handler of Ctrl-C, in the main thread, if the current handler is as expected.

    Parameters
    ----------
    handler
        The handler.
    instead_of
        The handler that it replaces; None to do nothing.
    """

    def __init__(self, handler: Any, instead_of: Any) -> None:
        self._handler, self._before = handler, instead_of

    def __enter__(self) -> None:
        in_main = threading.get_ident() == threading.main_thread().ident
        if not in_main or signals.getsignal(signals.SIGINT) is not self._before:
            self._before = None
        if self._before is not None:
            signals.signal(signals.SIGINT, self._handler)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signals.signal(signals.SIGINT, self._before)
