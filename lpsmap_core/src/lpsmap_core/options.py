"""Options of a solve: checked, and made Python's own numbers.

Kernels are compiled for the types that they are handed, and the engine's take many seconds: where
an ``int`` is usual, neither ``np.int32`` nor ``bool`` may reach them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from lpsmap_core.state import Options
from lpsmap_core.threads import default_threads

__all__ = ["checked_options", "count", "flag", "number", "threads_or_default"]

MOST = 2**63 - 1
"""What kernels can count to."""


def checked_options(
    *,
    max_iter: Any,
    max_inner_iter: Any,
    tol: Any,
    step_size: Any,
    adapt: Any,
    trace: Any,
    max_time: Any,
    threads: Any,
) -> Options:
    """Return options as the engine takes them; see `FactorGraph.solve`.

    Raises
    ------
    TypeError
        If one is of another type than it should be.
    ValueError
        If one is out of range.
    """
    if max_inner_iter is not None:
        max_inner_iter = count("max_inner_iter", max_inner_iter, ", or None for no limit")
    if step_size is not None:
        expected = "a number that is not negative, or None for the default"
        step_size = number("step_size", step_size, expected, _is_finite_and_not_negative)
    if max_time is not None:
        expected = "a positive number of seconds, or None for no limit"
        max_time = number("max_time", max_time, expected, lambda seconds: seconds > 0.0)
    return Options(
        max_iter=count("max_iter", max_iter),
        max_inner_iter=max_inner_iter,
        tol=number("tol", tol, "a number that is not negative", _is_finite_and_not_negative),
        max_time=max_time,
        step_size=step_size,
        adapt=flag("adapt", adapt),
        trace=flag("trace", trace),
        threads=threads_or_default(threads),
    )


def threads_or_default(threads: Any) -> int:
    """Return a number of threads; None stands for the default."""
    if threads is None:
        return default_threads()
    return count("threads", threads, ", or None for all cores")


def count(name: str, given: Any, otherwise: str = "", least: int = 1) -> int:
    """Return an argument that is an integer of at least `least`."""
    expected = f"an integer of at least {least}{otherwise}"
    try:
        found = operator.index(_plain(given))
    except TypeError:
        raise TypeError(f"{name}: got {given!r}; expected {expected}.") from None
    if found < least:
        raise ValueError(f"{name}: got {found}; expected {expected}.")
    if found > MOST:
        raise ValueError(f"{name}: got {found}; expected {expected}, and less than 2**63.")
    return found


def number(name: str, given: Any, expected: str, accepts: Callable[[float], bool]) -> float:
    """Return an argument that is a real number of some range."""
    plain = _plain(given)
    if not isinstance(plain, Real):
        raise TypeError(f"{name}: got {given!r}; expected {expected}.")
    try:
        found = float(plain)
    except OverflowError:
        found = np.nan
    if not accepts(found):
        raise ValueError(f"{name}: got {given}; expected {expected}.")
    return found


def flag(name: str, given: Any) -> bool:
    """Return an argument that is true or false."""
    plain = _plain(given)
    if not isinstance(plain, int) or plain not in (0, 1):
        raise TypeError(f"{name}: got {given!r}; expected True or False.")
    return bool(plain)


def _plain(given: Any) -> Any:
    """Return a scalar of Python for one of NumPy's or an array or tensor that holds just one."""
    if type(given) in (bool, int, float):
        return given
    return given.item() if hasattr(given, "item") and np.ndim(given) == 0 else given


def _is_finite_and_not_negative(x: float) -> bool:
    return 0.0 <= x < np.inf
