"""The executors that batches are handed to: given ones, and those made here."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from lpsmap_core.api import checked_count, kind_of

__all__ = ["Workers"]

UNKNOWN = 32
"""Workers that an executor is taken to have that does not say how many."""


class Workers:
    """An executor, and how to come by another if it breaks.

    Parameters
    ----------
    given
        An executor; a function that makes one; a number of processes; or None for none.

    Raises
    ------
    TypeError
        If it is something else.
    ValueError
        If the number is not positive.
    """

    def __init__(self, given: Any) -> None:
        self._make: Callable[[], Executor] | None = None
        if isinstance(given, Executor):
            self.executor = given
            return
        if given is None:
            self._make = _Here
        elif callable(given):
            self._make = given
        else:
            n = checked_count(
                "solve_many: executor", given, ", an Executor, a function that makes one, or None"
            )
            self._make = lambda: _processes(n)
        self.executor = self._made()

    def _made(self) -> Executor:
        assert self._make is not None
        executor = self._make()
        if not isinstance(executor, Executor):
            raise TypeError(
                f"solve_many: executor made {kind_of(executor)}; expected a function that "
                "returns a concurrent.futures.Executor."
            )
        return executor

    @property
    def renewable(self) -> bool:
        """Whether another executor can be made."""
        return self._make is not None

    @property
    def here(self) -> bool:
        """Whether there are none, and this process does the work."""
        return isinstance(self.executor, _Here)

    @property
    def by_pickle(self) -> bool:
        """Whether problems have to be pickled for them."""
        return not isinstance(self.executor, (_Here, ThreadPoolExecutor))

    @property
    def most_batches(self) -> int:
        """How many batches they should have at a time: one each, and one that waits."""
        return 1 if self.here else 2 * int(getattr(self.executor, "_max_workers", UNKNOWN))

    def renew(self) -> None:
        """Replace an executor that broke."""
        self.executor.shutdown(wait=False)
        self.executor = self._made()

    def close(self, finished: bool) -> None:
        """Leave a given executor as it is; end another, at once if it is not finished."""
        if not self.renewable:
            return
        processes = list((getattr(self.executor, "_processes", None) or {}).values())
        self.executor.shutdown(wait=finished)
        if not finished:
            for process in processes:
                process.terminate()


class _Here(Executor):
    """Works at once, in this process."""

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
