"""Executors for batches: given ones, and those created here."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from lpsmap_core.api import checked_count, kind_of

__all__ = ["BatchExecutor"]

UNKNOWN = 32
"""Assumed number of workers of an executor that does not report it."""


JOIN_SECONDS = 1.0
"""Seconds in which the thread of an executor ends after its processes, unless it waits for them."""


class BatchExecutor:
    """An executor, and how to replace it if it breaks.

    Parameters
    ----------
    given
        An executor; a function that returns one; a number of processes; or None for this process.
    name
        Name of the argument, for errors.

    Raises
    ------
    TypeError
        If it is anything else.
    ValueError
        If the number is not positive.
    """

    def __init__(self, given: Any, name: str = "executor") -> None:
        self._name = name
        self._make: Callable[[], Executor] | None = None
        if isinstance(given, Executor):
            self.executor = given
            return
        if given is None:
            self._make = _InlineExecutor
        elif callable(given):
            self._make = given
        else:
            expected = ", an Executor, a function that returns one, or None"
            n = checked_count(name, given, expected)
            self._make = lambda: _processes(n)
        self.executor = self._made()

    def _made(self) -> Executor:
        assert self._make is not None
        executor = self._make()
        if not isinstance(executor, Executor):
            raise TypeError(
                f"{self._name}: got a function that returns {kind_of(executor)}; expected one that "
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
        """Whether arguments of the work have to be pickled."""
        return not isinstance(self.executor, (_InlineExecutor, ThreadPoolExecutor))

    @property
    def most_batches(self) -> int:
        """Maximum number of batches under way. Of two for each worker, one waits."""
        return 1 if self.in_process else 2 * int(getattr(self.executor, "_max_workers", UNKNOWN))

    def renew(self) -> None:
        """Replace a broken executor."""
        self.close(finished=False)
        self.executor = self._made()

    def close(self, finished: bool) -> None:
        """Shut down an executor that was created here; terminate its processes if not finished."""
        if not self.renewable:
            return
        end = _end_of(self.executor)
        self.executor.shutdown(wait=finished)
        if not finished:
            end()


class _InlineExecutor(Executor):
    """Runs every call immediately, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _end_of(executor: Executor) -> Callable[[], None]:
    """Return a function that ends the processes of an executor which was told to shut down.

    A process may end while it sends a result, or before it receives its work. The threads of the
    executor then wait for the rest, and Python waits for these threads at exit. Hence the other
    ends of their pipes are closed, but only while the executor's own thread waits: it closes pipes,
    too, and a new pipe may have the number of one that was closed.
    """
    processes = list((getattr(executor, "_processes", None) or {}).values())
    thread: threading.Thread | None = getattr(executor, "_executor_manager_thread", None)
    queues = (("_result_queue", "_writer"), ("_call_queue", "_reader"))
    ends = [getattr(getattr(executor, queue, None), end, None) for queue, end in queues]

    def end_processes() -> None:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        for end in ends:
            if thread is not None:
                thread.join(JOIN_SECONDS)
            if thread is not None and thread.is_alive() and end is not None:
                end.close()

    return end_processes


def _processes(n: int) -> Executor:
    # a forked process would inherit locks that threads of this one hold
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=context, initializer=_begin_worker)


def _begin_worker() -> None:
    """Ignore interrupts, and exit when the parent process exits for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
