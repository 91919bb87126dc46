"""Options of a solve: checked, and made Python's own numbers.

Kernels are compiled for the types that they are handed, and the engine's take many seconds: where
an ``int`` is usual, neither ``np.int32`` nor ``bool`` may reach them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from lpsmap_core.engine.state import Options
from lpsmap_core.engine.threads import default_threads
from lpsmap_core.model.inputs import count, flag, number

__all__ = ["checked_options", "threads_or_default"]


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
    given = max_iter, max_inner_iter, tol, step_size, adapt, trace, max_time
    threads = threads_or_default(threads)
    if PLAIN.issuperset(map(type, given)):
        return _checked_plain(*given, threads)
    return _checked(*given, threads)


def _checked(
    max_iter: Any,
    max_inner_iter: Any,
    tol: Any,
    step_size: Any,
    adapt: Any,
    trace: Any,
    max_time: Any,
    threads: int,
) -> Options:
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
        threads=threads,
    )


PLAIN = {int, float, bool, type(None)}
_checked_plain = functools.lru_cache(maxsize=16, typed=True)(_checked)
"""Solves of small graphs would spend a twentieth of their time on checks of the same options."""


def threads_or_default(threads: Any) -> int:
    """Return a number of threads; None stands for the default."""
    if threads is None:
        return default_threads()
    return count("threads", threads, ", or None for all cores")


def _is_finite_and_not_negative(x: float) -> bool:
    return 0.0 <= x < np.inf
