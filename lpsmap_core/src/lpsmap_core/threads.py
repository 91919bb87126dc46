"""How many threads work, and on what."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

__all__ = ["default_threads", "in_threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")


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


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return a function's results for some items, each in a thread of its own.

    The function should spend its time in compiled code, which holds no lock. The first item is the
    calling thread's; to start one more takes less than half of what a pool does.

    Raises
    ------
    BaseException
        What the function raised for the first item for which it did, once all threads are done.
    """
    outcomes: list[tuple[Result | None, BaseException | None]] = [(None, None)] * len(items)

    def run(i: int) -> None:
        try:
            outcomes[i] = function(items[i]), None
        except BaseException as error:
            outcomes[i] = None, error

    others = [threading.Thread(target=run, args=(i,)) for i in range(1, len(items))]
    for thread in others:
        thread.start()
    if items:
        run(0)
    for thread in others:
        thread.join()
    for _, error in outcomes:
        if error is not None:
            raise error
    return [cast(Result, result) for result, _ in outcomes]
