"""Options of a solve: their validation and conversion to Python's own numbers.

Kernels compile for many seconds for each type of argument: neither ``np.int32`` nor ``bool`` may
reach one that expects an ``int``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.model.inputs import checked_count, checked_flag, checked_number
from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.threads import default_threads

__all__ = ["ALGORITHM_1", "RELAXATION", "Options", "checked_options", "threads_or_default"]

RELAXATION = 1.6
"""Default over-relaxation: of 1, 1.6 and 1.8 it takes the fewest iterations on most workloads."""

ALGORITHM_1: Mapping[str, Any] = MappingProxyType(
    {"max_iter": 10, "max_inner_iter": 10, "step_size": 0.5, "adapt": False, "relaxation": 1.0}
)
"""Options for a solve as in the papers: plain ADMM (Niculae & Martins 2020, Algorithm 1) with 10
iterations at step size 0.5, and 10 iterations of the active set in each (Appendix E.2)."""


class Options(NamedTuple):
    """Limits and settings of a solve. `FactorGraph.solve` documents those without a text here."""

    max_iter: int = 1000
    max_inner_iter: int | None = None
    tol: float = 1e-6
    max_time: float | None = None
    step_size: float | None = None
    adapt: bool = True
    generic: bool = False
    """Whether the active set replaces closed forms, for tests."""
    trace: bool = False
    threads: int = 1
    quadratic: float = 1.0
    """Weight of the quadratic term, 1 for LP-SparseMAP and 0 for LP-MAP (Martins et al. 2015)."""
    within: Deadline | None = None
    """Deadline of the task that this solve belongs to."""
    exact: bool = False
    """Whether a search follows; components that it bounds better need not be solved."""
    relaxation: float = RELAXATION
    """Over-relaxation of the copies before they are averaged."""


def checked_options(**options: Any) -> Options:
    """Validate and convert the options of `FactorGraph.solve` for the engine.

    Raises
    ------
    TypeError
        If an option has the wrong type.
    ValueError
        If an option is out of range.
    """
    options["threads"] = threads_or_default(options["threads"])
    if PLAIN_TYPES.issuperset(map(type, options.values())):
        return _checked_plain(**options)
    return _checked(**options)


def _checked(**options: Any) -> Options:
    return Options(**{name: CONVERTERS[name](value) for name, value in options.items()})


PLAIN_TYPES = {int, float, bool, type(None)}
_checked_plain = functools.lru_cache(maxsize=16, typed=True)(_checked)
"""Cached, because small graphs would spend a twentieth of a solve on validating equal options."""


def threads_or_default(threads: Any) -> int:
    """Return a validated number of threads; None means the default."""
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


CONVERTERS: dict[str, Callable[[Any], Any]] = {
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
"""For each option that users set, the function that validates and converts it."""
