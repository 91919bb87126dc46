"""Options of a solve: what they are, checked, and made Python's own numbers.

Kernels are compiled for the types that they are handed, and the engine's take many seconds: where
an ``int`` is usual, neither ``np.int32`` nor ``bool`` may reach them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.threads import default_threads
from lpsmap_core.model.inputs import checked_count, checked_flag, checked_number
from lpsmap_jit.deadlines import Deadline

__all__ = ["ALGORITHM_1", "RELAXATION", "Options", "checked_options", "threads_or_default"]

RELAXATION = 1.6
"""Of 1, 1.6 and 1.8 this took the fewest iterations on most workloads."""

ALGORITHM_1: Mapping[str, Any] = MappingProxyType(
    {"max_iter": 10, "max_inner_iter": 10, "step_size": 0.5, "adapt": False, "relaxation": 1.0}
)
"""Options of a solve as in the papers: plain ADMM (Niculae & Martins 2020, Algorithm 1), of 10
iterations at step size .5, with 10 of the active set in each (Appendix E.2)."""


class Options(NamedTuple):
    """Limits and settings of a solve; those that a user may set are `FactorGraph.solve`'s."""

    max_iter: int = 1000
    max_inner_iter: int | None = None
    tol: float = 1e-6
    max_time: float | None = None
    step_size: float | None = None
    adapt: bool = True
    generic: bool = False
    """Whether closed forms are left out, for tests."""
    trace: bool = False
    threads: int = 1
    quadratic: float = 1.0
    """What the quadratic term counts, 1 for LP-SparseMAP and 0 for LP-MAP (Martins et al. 2015)."""
    within: Deadline | None = None
    """When the work has to end that this solve is a part of."""
    exact: bool = False
    """Whether a search follows, so that what it bounds better need not be solved."""
    relaxation: float = RELAXATION
    """By what the copies are extrapolated before they are averaged."""


def checked_options(**given: Any) -> Options:
    """Return options as the engine takes them; see `FactorGraph.solve`.

    Raises
    ------
    TypeError
        If one is of another type than it should be.
    ValueError
        If one is out of range.
    """
    given["threads"] = threads_or_default(given["threads"])
    if PLAIN.issuperset(map(type, given.values())):
        return _checked_plain(**given)
    return _checked(**given)


def _checked(**given: Any) -> Options:
    return Options(**{name: CHECKS[name](value) for name, value in given.items()})


PLAIN = {int, float, bool, type(None)}
_checked_plain = functools.lru_cache(maxsize=16, typed=True)(_checked)
"""Solves of small graphs would spend a twentieth of their time on checks of the same options."""


def threads_or_default(threads: Any) -> int:
    """Return a number of threads; None stands for the default."""
    if threads is None:
        return default_threads()
    return checked_count("threads", threads, ", or None for all cores")


def _tolerance(tol: Any) -> float:
    return checked_number("tol", tol, "a number that is not negative", _is_finite_and_not_negative)


def _inner_iterations(limit: Any) -> int | None:
    return (
        None if limit is None else checked_count("max_inner_iter", limit, ", or None for no limit")
    )


def _step_size(step_size: Any) -> float | None:
    if step_size is None:
        return None
    expected = "a number that is not negative, or None for the default"
    return checked_number("step_size", step_size, expected, _is_finite_and_not_negative)


def _relaxation(relaxation: Any) -> float:
    expected = "a number between 0 and 2, beyond which the iterations may diverge"
    return checked_number("relaxation", relaxation, expected, lambda by: 0.0 < by < 2.0)


def _seconds(limit: Any) -> float | None:
    if limit is None:
        return None
    expected = "a positive number of seconds, or None for no limit"
    return checked_number("max_time", limit, expected, lambda seconds: seconds > 0.0)


def _is_finite_and_not_negative(x: float) -> bool:
    return 0.0 <= x < np.inf


CHECKS: dict[str, Callable[[Any], Any]] = {
    "max_iter": lambda limit: checked_count("max_iter", limit),
    "max_inner_iter": _inner_iterations,
    "tol": _tolerance,
    "max_time": _seconds,
    "step_size": _step_size,
    "adapt": lambda adapt: checked_flag("adapt", adapt),
    "relaxation": _relaxation,
    "trace": lambda trace: checked_flag("trace", trace),
    "threads": threads_or_default,
}
"""The options that users set, and what makes of each what the engine takes."""
