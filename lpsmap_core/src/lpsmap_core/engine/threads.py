"""How many threads work, and on what."""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from itertools import repeat
from typing import TypeVar

import numpy as np

from lpsmap_core.kernels.arrays import IntArray
from lpsmap_core.kernels.interrupts import Watch, halt, raise_interrupt, thread_record
from lpsmap_core.kernels.tiers import interprets

__all__ = ["SMALLEST_SHARE", "cut", "default_threads", "in_shares"]

Result = TypeVar("Result")

SMALLEST_SHARE = 1_500
"""Links that take longer to solve than a thread to start."""


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
    """Return a function's results for shares of some items, taken in turn by some threads.

    The function should spend its time in compiled code, which holds no lock; where kernels are
    interpreted, one thread does all. Each thread takes the
    next share when it is done with one, for how long a share takes is not known before. The calling
    thread is one of them.

    Parameters
    ----------
    function
        Called with consecutive items.
    items
        The items.
    sizes
        For each item, about how much work it is; `SMALLEST_SHARE` is worth a call.
    threads
        Number of threads that may be used.

    Raises
    ------
    BaseException
        What the function raised for the first share for which it did, once all threads are done; or
        what the handler of a signal raised meanwhile, for which all come out of compiled code.
    """
    shares = cut(items, sizes, 1 if interprets() else threads)
    if len(shares) < 2:
        found = [function(share) for share in shares]
        raise_interrupt()
        return found
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    left = iter(range(len(shares)))  # `next` of it is atomic

    def work() -> None:
        for i in left:
            try:
                results[i] = function(shares[i])
            except BaseException as error:
                errors[i] = error
                if not isinstance(error, Exception):
                    halt()
                break

    _together(work, min(threads, len(shares)))
    for i in sorted(errors, key=lambda i: (isinstance(errors[i], Exception), i)):
        raise errors[i]
    return [results[i] for i in range(len(shares))]


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


def cut(items: IntArray, sizes: IntArray, threads: int) -> list[IntArray]:
    """Return consecutive shares of some items, smaller and smaller; one for a single thread.

    Each is what one thread would get of half of what is left, but no less than `SMALLEST_SHARE`
    while there is as much: so that the threads end at about the same time, in few calls
    (Polychronopoulos & Kuck 1987).
    """
    if threads == 1 or len(items) < 2:
        return [items] if len(items) else []
    total = np.cumsum(sizes)
    if total[-1] < 2 * SMALLEST_SHARE:
        return [items]
    shares, begin = [], 0
    while begin < len(items):
        done = total[begin - 1] if begin else 0
        wanted = max((total[-1] - done) // 2 // threads, SMALLEST_SHARE)
        end = max(int(np.searchsorted(total, done + wanted, side="right")), begin + 1)
        shares.append(items[begin:end])
        begin = end
    return shares
