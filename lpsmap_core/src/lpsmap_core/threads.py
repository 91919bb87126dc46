"""How many threads work, and on what."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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

    The function should spend its time in compiled code, which holds no lock.
    """
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(function, items))
