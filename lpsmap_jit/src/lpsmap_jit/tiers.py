"""Two tiers of kernels: at first they run in Python, later they are compiled.

Compiling the kernels of one small solve takes half a minute on a new machine; running them in
Python takes a tenth of a second. In a process without cached kernels, small calls therefore run in
Python until these have taken some seconds in all. A kernel gets the same arguments in both tiers,
so a solve may begin in one and end in the other.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lpsmap_jit.deadlines import compiling

COMPILE_AFTER = "LPSMAP_COMPILE_AFTER"
"""The environment variable with the processor seconds of interpreted calls before kernels are
compiled. On a busy machine these calls take longer, but so does compilation."""

SECONDS = 4.0
"""Its default: a fifth of the compilation time of the solver. Rows of 19 `Dense` factors, at 20 a
side, are solved in 3.5 of them."""

MAX_NUMBERS = 100_000
"""Numbers in the arguments of a call above which an interpreted one would take too long: those of
graphs of about 4,000 links."""

CAN_INTERPRET = int(np.__version__.partition(".")[0]) >= 2
"""Before NumPy 2, an unsigned index plus 1 is a float, which is not a valid index."""


class _Tier:
    """The tier of this process; `compiling` lets one thread at a time change it."""

    interprets = False
    left: float | None = None
    """Remaining seconds of interpreted calls."""
    thread: int | None = None
    """The thread that runs an interpreted kernel, which calls others."""
    kernels: Any = None
    """The class of kernels, whose calls go through `_call` as long as they may be interpreted."""


_tier = _Tier()


def start_with(kernels: Any) -> None:
    """Interpret kernels from now on; None if they are Python functions, which are not compiled."""
    _tier.kernels, _tier.interprets = kernels, CAN_INTERPRET or kernels is None
    if kernels is not None and CAN_INTERPRET:
        kernels.__call__ = _call


def interprets() -> bool:
    """Return whether calls of kernels are interpreted, unless they are large."""
    if _tier.interprets and _tier.kernels is not None and _seconds_left() <= 0.0:
        compile_now()
    return _tier.interprets


def compile_now() -> None:
    """Compile kernels from now on."""
    with compiling():
        if _tier.interprets and _tier.kernels is not None:
            _tier.interprets = False
            del _tier.kernels.__call__  # without it, a call is that of numba


@contextmanager
def interpreted() -> Iterator[None]:
    """Interpret all kernels in a block, in all threads of the process."""
    before = _tier.interprets, _tier.left
    start_with(_tier.kernels)
    _tier.left = math.inf
    try:
        yield
    finally:
        was_interpreted, _tier.left = before
        if not was_interpreted:
            compile_now()


def _call(kernel: Any, *args: Any) -> Any:
    """Call a kernel, interpreted if that may be faster than compiling it."""
    if _tier.thread == threading.get_ident():
        return kernel.interpreted(*args)
    with compiling():
        if _may_interpret(kernel, args):
            return _interpret(kernel, args)
    return kernel(*args)


def _interpret(kernel: Any, args: tuple[Any, ...]) -> Any:
    """Run a kernel in Python. NumPy does not warn about overflow, as in compiled kernels."""
    begin, _tier.thread = time.thread_time(), threading.get_ident()
    try:
        with np.errstate(all="ignore"):
            return kernel.interpreted(*args)
    finally:
        _tier.thread = None
        _tier.left = _seconds_left() - (time.thread_time() - begin)


def _may_interpret(kernel: Any, args: tuple[Any, ...]) -> bool:
    """Return whether to interpret a call; if not, no later one is interpreted either.

    If a kernel is compiled or cached on disk, so are the others that an earlier process used.
    """
    if not interprets() or _seconds_left() == math.inf:
        return _tier.interprets
    if kernel.is_compiled() or _n_numbers(args) > MAX_NUMBERS:
        compile_now()
    return _tier.interprets


def _n_numbers(value: Any) -> int:
    """Return how many numbers a kernel can read from an argument."""
    if isinstance(value, tuple):
        return sum(map(_n_numbers, value))
    if not isinstance(value, np.ndarray):
        return 1
    return value.size + _n_numbers(getattr(value.base, "record", ()))


def _seconds_left() -> float:
    """Return the remaining seconds, at first those of the environment variable."""
    if _tier.left is None:
        _tier.left = _seconds()
    return _tier.left


def _seconds() -> float:
    given = os.environ.get(COMPILE_AFTER, "")
    try:
        seconds = float(given or SECONDS)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0.0:
        raise ValueError(
            f"{COMPILE_AFTER}: got {given!r}; expected seconds, 0 or more, for which kernels are "
            "interpreted before they are compiled. Unset it for the default."
        )
    return seconds
