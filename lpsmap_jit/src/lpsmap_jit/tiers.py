"""Two tiers of kernels: interpreted while that is sooner than to compile them, then compiled.

To compile what one small solve calls takes half a minute, on a machine that never did; to run it as
the Python that it is takes a tenth of a second. So the first small solves of a process that finds
nothing compiled are interpreted, until they have taken some seconds in all. What was solved so goes
on so: a solved graph holds either Python's objects or the addresses that compiled kernels want.
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
"""The environment variable that says after how many seconds of interpreted work to compile."""

SECONDS = 2.0
"""Its default: a tenth of what it takes to compile the loop."""

LARGEST = 2_000
"""Links and additionals of a graph beyond which a solve would take longer than that."""

CAN_INTERPRET = int(np.__version__.partition(".")[0]) >= 2
"""Before NumPy 2, an unsigned index plus 1 is a fraction, which is no index."""

ONLY_IN_PYTHON = (ArithmeticError, IndexError, NotImplementedError, TypeError)
"""What Python can raise where compiled code has infinities, wraps around, or has types that fit."""

Result = TypeVar("Result")


class TooSlow(Exception):
    """Interpreted kernels have taken as long as they may."""


class _Tier(threading.local):
    """Whether a thread interprets kernels, and until when."""

    interprets = False
    until = math.inf

    def go_on(self) -> None:
        """Raise `TooSlow` if the time is up."""
        if time.perf_counter() > self.until:
            raise TooSlow


of_thread = _Tier()


class _Patience:
    """Seconds that this process may still interpret kernels."""

    left: float | None = None


def interprets() -> bool:
    """Return whether this thread interprets kernels."""
    return of_thread.interprets


@contextmanager
def interpreted(until: float = math.inf) -> Iterator[None]:
    """Let this thread interpret kernels, until some time of ``time.perf_counter``.

    As in compiled kernels, NumPy warns of no overflow.
    """
    before = of_thread.interprets, of_thread.until
    of_thread.interprets, of_thread.until = True, until
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        of_thread.interprets, of_thread.until = before


def unless_slow(function: Callable[[], Result], main: Any, size: Callable[[], int]) -> Result:
    """Call a function, with its kernels interpreted if that may be sooner than to compile them.

    It is called again, with compiled kernels, if that took too long, or if it raised what compiled
    code would not: so it must leave no trace before it ends.

    Parameters
    ----------
    function
        What to call.
    main
        A kernel that it calls: if that is compiled, or kept on disk, so is the rest.
    size
        Returns the number of links and additionals.
    """
    if not _may_interpret(main, size):
        return function()
    begin = time.perf_counter()
    try:
        with interpreted(begin + (_Patience.left or 0.0)):
            return function()
    except (TooSlow, *ONLY_IN_PYTHON):
        pass
    finally:
        _Patience.left = (_Patience.left or 0.0) - (time.perf_counter() - begin)
    return function()


def give_up() -> None:
    """Let `unless_slow` call its function with compiled kernels, if these are not."""
    if of_thread.until < math.inf:
        raise TooSlow


def compile_now() -> None:
    """Interpret no more in this process, which wants kernels compiled whatever it takes."""
    _Patience.left = 0.0


def _may_interpret(main: Any, size: Callable[[], int]) -> bool:
    if _Patience.left is None:
        _Patience.left = _seconds()
    if _Patience.left <= 0.0 or of_thread.interprets or not CAN_INTERPRET:
        return False
    if main.is_compiled():
        compile_now()
        return False
    return size() <= LARGEST


def _seconds() -> float:
    """Return what the environment says.

    Raises
    ------
    ValueError
        If it says no number.
    """
    given = os.environ.get(PATIENCE, "")
    try:
        seconds = float(given or SECONDS)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0.0:
        raise ValueError(
            f"{PATIENCE}: got {given!r}; expected seconds, 0 or more: how long kernels may be "
            "interpreted before they are compiled. Unset it for the default."
        )
    return seconds
