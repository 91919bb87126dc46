"""Executors for batches: given ones, and those created here."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from lpsmap_core.api import checked_count, kind_of

__all__ = ["BatchExecutor"]

UNKNOWN = 32
"""Assumed number of workers of an executor that does not report it."""


class BatchExecutor:
    """An executor, and how to replace it if it breaks.

    Parameters
    ----------
    given
        An executor; a function that returns one; a number of processes; or None for this process.

    Raises
    ------
    TypeError
        If it is anything else.
    ValueError
        If the number is not positive.
    """

    def __init__(self, given: Any) -> None:
        self._make: Callable[[], Executor] | None = None
        if isinstance(given, Executor):
            self.executor = given
            return
        if given is None:
            self._make = _InlineExecutor
        elif callable(given):
            self._make = given
        else:
            n = checked_count(
                "solve_many: executor", given, ", an Executor, a function that returns one, or None"
            )
            self._make = lambda: _processes(n)
        self.executor = self._made()

    def _made(self) -> Executor:
        assert self._make is not None
        executor = self._make()
        if not isinstance(executor, Executor):
            raise TypeError(
                f"solve_many: executor returned {kind_of(executor)}; expected a function that "
                "returns a concurrent.futures.Executor."
            )
        return executor

    @property
    def renewable(self) -> bool:
        """Whether the executor can be replaced."""
        return self._make is not None

    @property
    def in_process(self) -> bool:
        """Whether this process does the work."""
        return isinstance(self.executor, _InlineExecutor)

    @property
    def needs_pickling(self) -> bool:
        """Whether problems have to be pickled."""
        return not isinstance(self.executor, (_InlineExecutor, ThreadPoolExecutor))

    @property
    def most_batches(self) -> int:
        """Maximum number of batches under way: two for each worker, one of them waiting."""
        return 1 if self.in_process else 2 * int(getattr(self.executor, "_max_workers", UNKNOWN))

    def renew(self) -> None:
        """Replace a broken executor."""
        self.executor.shutdown(wait=False)
        self.executor = self._made()

    def close(self, finished: bool) -> None:
        """Shut down an executor that was created here; terminate its processes if not finished."""
        if not self.renewable:
            return
        processes = list((getattr(self.executor, "_processes", None) or {}).values())
        self.executor.shutdown(wait=finished)
        if not finished:
            for process in processes:
                process.terminate()


class _InlineExecutor(Executor):
    """Runs every call immediately, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _processes(n: int) -> Executor:
    # a forked process would inherit locks that threads of this one hold
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=context, initializer=_leave_interrupts_to_the_parent)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
