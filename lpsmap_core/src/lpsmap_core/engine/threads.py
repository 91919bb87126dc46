"""How many threads work, and on what."""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from itertools import pairwise, repeat
from typing import TypeVar

import numpy as np

from lpsmap_jit.arrays import IntArray
from lpsmap_jit.interrupts import Watch, halt, raise_interrupt, thread_record
from lpsmap_jit.tiers import interprets

__all__ = ["SMALLEST_WORK", "cut", "default_threads", "in_shares"]

Result = TypeVar("Result")

SMALLEST_WORK = 1_500
"""Links that take longer to solve than a thread to start."""

SMALLEST_SHARE = 500
"""Links that take longer to solve than it takes to ask for them."""


def default_threads() -> int:
    """Return the number of threads to use: ``LPSMAP_THREADS``, or the cores of this process.

    Raises
    ------
    ValueError
        If the environment variable is not a positive integer.
    """
    wanted = os.environ.get("LPSMAP_THREADS", "")
    if not wanted:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if not wanted.isdecimal() or int(wanted) < 1:
        raise ValueError(
            f"LPSMAP_THREADS: got {wanted!r}; expected a positive integer. Unset it for all cores."
        )
    return int(wanted)


def in_shares(
    function: Callable[[IntArray], Result], items: IntArray, sizes: IntArray, threads: int
) -> list[Result]:
    """Return what a function returns for shares of some items, which threads take in turn.

    How long a share takes is not known before, so a thread takes the next one when it is done with
    one. The function should spend its time in compiled code, which holds no lock; where kernels are
    interpreted, one thread does all. The calling thread is one of them.

    Parameters
    ----------
    function
        Called with each share.
    items
        The items; without any, the function is not called.
    sizes
        For each item, about how much work it is; `SMALLEST_WORK` is worth a thread.
    threads
        Number of threads that may be used.

    Raises
    ------
    BaseException
        What the function raised, once all threads are done; or what the handler of a signal raised
        meanwhile, for which all come out of compiled code.
    """
    if not len(items):
        return []
    bounds, threads = cut(sizes, 1 if interprets() else threads)
    if threads == 1:
        found = [function(items)]
        raise_interrupt()
        return found
    waiting = iter([items[begin:end] for begin, end in pairwise(bounds)])
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for share in waiting:  # one iterator for all threads: each share goes to one of them
                results.append(function(share))
        except BaseException as error:
            errors.append(error)
            if not isinstance(error, Exception):
                halt()

    _together(work, threads)
    for error in sorted(errors, key=lambda error: isinstance(error, Exception)):
        raise error
    return results


def _together(work: Callable[[], None], threads: int) -> None:
    """Call a function in some threads, of which the calling one is the last; wait for all.

    ``threading.Thread.start`` waits until the thread runs, which takes longer than small shares.
    Whatever a signal's handler raises, and wherever: the threads write to what the caller holds, so
    that nothing is raised before all have ended.
    """
    leader, raised, begun = thread_record(), None, False
    running = [_thread.allocate_lock() for _ in range(threads - 1)]
    started: list[int] = []

    def help_out(own: _thread.LockType) -> None:
        try:
            with Watch(leader=leader):
                work()
        finally:
            own.release()

    for lock in running:
        lock.acquire()
    while True:
        try:
            if not begun:
                begun = True
                # one call, after which it is known how many were started, even if it is cut short
                started.extend(map(_thread.start_new_thread, repeat(help_out), zip(running)))
                work()
            for lock in running[: len(started)]:
                with lock:
                    pass
            break
        except BaseException as error:
            halt()
            raised = raised or error
    raise_interrupt()
    if raised is not None:
        raise raised


def cut(sizes: IntArray, threads: int) -> tuple[IntArray, int]:
    """Return the bounds of shares of some items, smaller and smaller, and how many threads to use.

    Each is what one thread would get of half of what is left, but no less than `SMALLEST_SHARE`
    while there is as much: so that the threads end at about the same time (Polychronopoulos & Kuck
    1987). For a single thread there is one.
    """
    n, total = len(sizes), int(sizes.sum()) if threads > 1 else 0
    threads = min(threads, n, total // SMALLEST_WORK)
    if threads < 2:
        return np.array([0, n]), 1
    wanted, done = [], 0
    while done < total:
        done += max((total - done) // (2 * threads), SMALLEST_SHARE)
        wanted.append(done)
    ends = sizes.cumsum().searchsorted(wanted, side="right").tolist()
    bounds = sorted({0, *ends, n})
    return np.array(bounds), min(threads, len(bounds) - 1)
