"""Two tiers of kernels: interpreted at first, compiled later.

Compiling the kernels of one small solve takes half a minute on a new machine; interpreting them in
Python takes a tenth of a second. In a process without cached kernels, the first small solves are
therefore interpreted, until they have taken some seconds in total. A solution keeps the mode that
produced it: it holds either Python objects or addresses for compiled kernels.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

__all__ = [
    "CAN_INTERPRET",
    "PATIENCE",
    "TooSlow",
    "compile_now",
    "give_up",
    "interpreted",
    "interprets",
    "of_thread",
    "unless_slow",
]

PATIENCE = "LPSMAP_COMPILE_AFTER"
"""The environment variable with the seconds of interpreted work before kernels are compiled."""

SECONDS = 2.0
"""Its default: a tenth of the compilation time of the solver."""

LARGEST_INTERPRETED = 2_000
"""Number of links and additionals of a graph beyond which an interpreted solve would take longer
than that."""

CAN_INTERPRET = int(np.__version__.partition(".")[0]) >= 2
"""Before NumPy 2, an unsigned index plus 1 is a float, which is not a valid index."""

Result = TypeVar("Result")


class TooSlow(Exception):
    """Interpreted kernels have exceeded their time limit."""


class _Tier(threading.local):
    """Whether a thread interprets kernels, and its time limit."""

    interprets = False
    until = math.inf

    def go_on(self) -> None:
        """Raise `TooSlow` after the time limit."""
        if time.perf_counter() > self.until:
            raise TooSlow


of_thread = _Tier()


class _Patience:
    """Remaining seconds of interpreted kernels in this process."""

    left: float | None = None


def interprets() -> bool:
    """Return whether this thread interprets kernels."""
    return of_thread.interprets


@contextmanager
def interpreted(until: float = math.inf) -> Iterator[None]:
    """Interpret kernels in this thread, until a time of ``time.perf_counter``.

    NumPy does not warn about overflow, as in compiled kernels.
    """
    before = of_thread.interprets, of_thread.until
    of_thread.interprets, of_thread.until = True, until
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        of_thread.interprets, of_thread.until = before


def unless_slow(function: Callable[[], Result], main: Any, size: Callable[[], int]) -> Result:
    """Call a function, with its kernels interpreted if that may be faster than compiling them.

    It is called again with compiled kernels if that took too long: it must have no side effects
    before it returns. Errors of interpreted kernels arrive like any other.

    Parameters
    ----------
    function
        The function.
    main
        A kernel that it calls: if it is compiled or cached on disk, so are the others.
    size
        Returns the number of links and additionals.
    """
    if not _may_interpret(main, size):
        return function()
    begin = time.perf_counter()
    try:
        with interpreted(begin + (_Patience.left or 0.0)):
            return function()
    except TooSlow:
        pass
    finally:
        _Patience.left = (_Patience.left or 0.0) - (time.perf_counter() - begin)
    return function()


def give_up() -> None:
    """Make `unless_slow` call its function again with compiled kernels, if they are interpreted."""
    if of_thread.until < math.inf:
        raise TooSlow


def compile_now() -> None:
    """Disable interpretation in this process."""
    _Patience.left = 0.0


def _may_interpret(main: Any, size: Callable[[], int]) -> bool:
    if _Patience.left is None:
        _Patience.left = _seconds()
    if _Patience.left <= 0.0 or of_thread.interprets or not CAN_INTERPRET:
        return False
    if main.is_compiled():
        compile_now()
        return False
    return size() <= LARGEST_INTERPRETED


def _seconds() -> float:
    """Return the value of the environment variable.

    Raises
    ------
    ValueError
        If it is not a number.
    """
    given = os.environ.get(PATIENCE, "")
    try:
        seconds = float(given or SECONDS)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0.0:
        raise ValueError(
            f"{PATIENCE}: got {given!r}; expected seconds, 0 or more, for which kernels are "
            "interpreted before they are compiled. Unset it for the default."
        )
    return seconds
