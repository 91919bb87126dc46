"""Ctrl-C as the end of a time limit rather than an exception."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.deferral import signals
from lpsmap_jit.interrupts import renew_deadline


def ended_by_ctrl_c(deadline: Deadline) -> AbstractContextManager[None]:
    """Let the first Ctrl-C in a block end a deadline and running kernels; a second one raises.

    User-installed handlers are left alone, and so are threads other than the main one.

    Parameters
    ----------
    deadline
        The deadline; afterwards ``deadline.cut`` tells whether Ctrl-C was pressed.
    """
    return _handled(_CtrlC(deadline), signals.default_int_handler)


def raised_by_ctrl_c() -> AbstractContextManager[None]:
    """Let Ctrl-C raise within `ended_by_ctrl_c`, for third-party code without deadlines."""
    before = signals.getsignal(signals.SIGINT)
    return _handled(signals.default_int_handler, before if isinstance(before, _CtrlC) else None)


class _CtrlC:
    """A handler that ends a deadline the first time."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._deadline.cut:
            raise KeyboardInterrupt
        self._deadline.end()
        renew_deadline()


@contextmanager
def _handled(handler: Any, instead_of: Any) -> Iterator[None]:
    """Handle Ctrl-C by another handler in a block, in the main thread.

    Nothing changes if the current handler is not the one to replace, or that is None.
    """
    in_main = threading.get_ident() == threading.main_thread().ident
    if not in_main or instead_of is None or signals.getsignal(signals.SIGINT) is not instead_of:
        yield
        return
    try:
        signals.signal(signals.SIGINT, handler)
        yield
    finally:
        signals.signal(signals.SIGINT, instead_of)
