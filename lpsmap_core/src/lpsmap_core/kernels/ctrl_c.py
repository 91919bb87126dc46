"""Ctrl-C as the end of the time that a search has, rather than an exception."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from lpsmap_core.kernels.deadlines import Deadline
from lpsmap_core.kernels.deferral import signals
from lpsmap_core.kernels.interrupts import renew_deadline

__all__ = ["ended_by_ctrl_c", "raised_by_ctrl_c"]


@contextmanager
def ended_by_ctrl_c(deadline: Deadline) -> Iterator[None]:
    """Let the first Ctrl-C end a deadline, and all that watches for it; a second one raises.

    Whoever has a handler of their own for it goes without.
    """
    with _handled_by(_CtrlC(deadline), instead_of=signals.default_int_handler):
        yield


@contextmanager
def raised_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise within `ended_by_ctrl_c`: for code of others, which knows no deadlines."""
    before = signals.getsignal(signals.SIGINT)
    ends = before if isinstance(before, _CtrlC) else None
    with _handled_by(signals.default_int_handler, instead_of=ends):
        yield


class _CtrlC:
    """A handler that ends a deadline, once."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._deadline.cut:
            raise KeyboardInterrupt
        self._deadline.end()
        renew_deadline()


@contextmanager
def _handled_by(handler: Any, instead_of: Any) -> Iterator[None]:
    """Let Ctrl-C have a handler, in the main thread and if it has a certain other one."""
    number = signals.SIGINT
    in_main = threading.get_ident() == threading.main_thread().ident
    if instead_of is None or not in_main or signals.getsignal(number) is not instead_of:
        yield
        return
    signals.signal(number, handler)
    try:
        yield
    finally:
        signals.signal(number, instead_of)
