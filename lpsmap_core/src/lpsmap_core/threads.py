"""How many threads work, and on what."""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["SMALLEST_SHARE", "cut", "default_threads", "in_shares"]

IntArray = npt.NDArray[np.int64]
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

    The function should spend its time in compiled code, which holds no lock. Each thread takes the
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
        What the function raised for the first share for which it did, once all threads are done.
    """
    shares = cut(items, sizes, threads)
    if len(shares) < 2:
        return [function(share) for share in shares]
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    left = iter(range(len(shares)))  # `next` of it is atomic

    def work() -> None:
        for i in left:
            try:
                results[i] = function(shares[i])
            except BaseException as error:
                errors[i] = error
                break

    others: list[_thread.LockType] = []
    try:
        others += (_begin(work) for _ in range(min(threads, len(shares)) - 1))
        work()
    finally:  # whatever happens here, the others write to what the caller holds
        for ended in others:
            ended.acquire()
    for i in sorted(errors):
        raise errors[i]
    return [results[i] for i in range(len(shares))]


def _begin(work: Callable[[], None]) -> _thread.LockType:
    """Call a function in a new thread; returns a lock that is held until it ends.

    ``threading.Thread.start`` waits until the thread runs, which takes longer than small shares.
    """
    ended = _thread.allocate_lock()
    ended.acquire()

    def run() -> None:
        try:
            work()
        finally:
            ended.release()

    _thread.start_new_thread(run, ())
    return ended


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
