"""Threads: their number, and the distribution of work among them."""

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

Result = TypeVar("Result")

MIN_WORK = 1_500
"""Smallest work for a thread, in links of a graph. It takes longer than to start a thread."""

COUPLED_WORK = 8
"""How many times more links of coupled components are worth a thread than of separate factors.
Their kernels are short, and threads that call short kernels wait for each other's lock: two threads
took 1.9 times as long as one for sequences of 9,000 links, and 0.9 for matchings of 30,000."""

MIN_SHARE = 500
"""Smallest share, in links: it takes longer to solve than to fetch."""

BLOCK_LINKS = 64_000
"""Links of components that are solved side by side, whose data stay in the cache. This is also the
smallest share of cheaper work, unless a thread's part is less: the longer its kernels, the less
often a thread waits for the lock of others."""


def default_threads() -> int:
    """Return the number of threads to use: ``LPSMAP_THREADS``, or the cores of this process."""
    wanted = os.environ.get("LPSMAP_THREADS", "")
    if not wanted:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if not wanted.isdecimal() or int(wanted) < 1:
        raise ValueError(
            f"LPSMAP_THREADS: got {wanted!r}; expected a positive integer. Unset it for all cores."
        )
    return int(wanted)


def in_shares(
    function: Callable[[IntArray], Result],
    items: IntArray,
    sizes: IntArray,
    threads: int,
    cheaper: int = 1,
) -> list[Result]:
    """Call a function on shares of some items in several threads, and return its results.

    The time of a share is not known in advance, so each thread takes the next share when it has
    finished one. The function should spend its time in compiled code, which holds no lock. If
    kernels are interpreted, one thread does all the work. The calling thread is one of the threads.

    An error of the function is raised once all threads have ended, and that of a signal handler
    once all threads have left compiled code.

    Parameters
    ----------
    function
        Called with each share.
    items
        The items. The function is not called for an empty array.
    sizes
        For each item, an estimate of its work; `MIN_WORK` is worth a thread.
    threads
        Number of threads that may be used.
    cheaper
        How many times less work a unit of size is than a link of a coupled component.
    """
    if not len(items):
        return []
    bounds, threads = cut(sizes, 1 if interprets() else threads, cheaper)
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

    _run_in_threads(work, threads)
    for error in sorted(errors, key=lambda error: isinstance(error, Exception)):
        raise error
    return results


def _run_in_threads(work: Callable[[], None], threads: int) -> None:
    """Call a function in some threads, with the calling one as the last, and wait for all.

    ``threading.Thread.start`` waits until the thread runs, which takes longer than small shares.
    The threads write to arrays of the caller. If a signal handler raises, at whatever point, its
    error is therefore raised only after all threads have ended.
    """
    leader, raised, launched = thread_record(), None, False
    running = [_thread.allocate_lock() for _ in range(threads - 1)]
    started: list[int] = []

    def assist(own: _thread.LockType) -> None:
        try:
            with Watch(leader=leader):
                work()
        finally:
            own.release()

    for lock in running:
        lock.acquire()
    while True:
        try:
            if not launched:
                launched = True
                # a single call, so that `started` is right even if a signal interrupts it
                started.extend(map(_thread.start_new_thread, repeat(assist), zip(running)))
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


def cut(sizes: IntArray, threads: int, cheaper: int = 1) -> tuple[IntArray, int]:
    """Return the bounds of shares of decreasing size, and the number of threads to use.

    Each share is a thread's part of half the remaining work, so that the threads end at about the
    same time (Polychronopoulos & Kuck 1987), but at least `MIN_SHARE`. If a unit is `cheaper`
    than a link of separate factors, a thread is worth so many times more of them, and the smallest
    share is `BLOCK_LINKS`. A single thread gets one share.
    """
    n, total = len(sizes), int(sizes.sum()) if threads > 1 else 0
    threads = min(threads, n, total // (MIN_WORK * cheaper))
    if threads < 2:
        return np.array([0, n]), 1
    smallest = MIN_SHARE if cheaper == 1 else min(BLOCK_LINKS, -(-total // threads))
    wanted, done = [], 0
    while done < total:
        done += max((total - done) // (2 * threads), smallest)
        wanted.append(done)
    ends = sizes.cumsum().searchsorted(wanted, side="right").tolist()
    bounds = sorted({0, *ends, n})
    return np.array(bounds), min(threads, len(bounds) - 1)
