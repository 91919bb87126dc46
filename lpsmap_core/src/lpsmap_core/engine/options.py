"""Options of a solve: their validation and conversion to Python's own numbers.

Kernels compile for many seconds for each type of argument: neither ``np.int32`` nor ``bool`` may
reach one that expects an ``int``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from lpsmap_core.model.inputs import checked_count, checked_flag, checked_number
from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.threads import default_threads

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
    trace: bool = False
    threads: int = 1
    quadratic: float = 1.0
    """Weight of the quadratic term. For LP-SparseMAP it is the temperature, for LP-MAP it is 0
    (Martins et al. 2015). Engines get 1 or 0."""
    within: Deadline | None = None
    """Deadline of the task that this solve belongs to."""
    exact: bool = False
    """Whether a search follows; components that it bounds better need not be solved."""
    relaxation: float = 1.6
    """Over-relaxation of the copies before they are averaged. Of 1, 1.6 and 1.8, the default takes
    the fewest iterations on most workloads."""
    dual_tol: float | None = None
    backward_tol: float = 1e-13
    backward_max_iter: int = 2000


DEFAULTS = Options()
"""The defaults of `FactorGraph.solve`, and of layers."""


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
    converted = {name: CONVERTERS[name](value) for name, value in options.items()}
    return Options(quadratic=converted.pop("temperature", 1.0), **converted)


def options_of_engine(options: Options) -> Options:
    """Return the options that engines get: the temperature divides the scores instead."""
    return options if options.quadratic in (0.0, 1.0) else options._replace(quadratic=1.0)


PLAIN_TYPES = {int, float, bool, type(None)}
_checked_plain = functools.lru_cache(maxsize=16, typed=True)(_checked)
"""Cached, because small graphs would spend a twentieth of a solve on validating equal options."""


def threads_or_default(threads: Any) -> int:
    """Return a validated number of threads; None means the default."""
    if threads is None:
        return default_threads()
    return checked_count("threads", threads, ", or None for all cores")


def _count(name: str, otherwise: str = "") -> Callable[[Any], int | None]:
    """Return a function that validates a count, or None if `otherwise` says what that means."""
    return lambda value: (
        None if otherwise and value is None else checked_count(name, value, otherwise)
    )


def _number(
    name: str, expected: str, accepts: Callable[[float], bool], otherwise: str = ""
) -> Callable[[Any], float | None]:
    """Return a function that validates a number, or None if `otherwise` says what that means."""
    return lambda value: (
        None
        if otherwise and value is None
        else checked_number(name, value, expected + otherwise, accepts)
    )


def _not_negative(name: str, otherwise: str = "") -> Callable[[Any], float | None]:
    expected = "a number that is not negative"
    return _number(name, expected, lambda value: 0.0 <= value < np.inf, otherwise)


SECONDS, NO_LIMIT = "a positive number of seconds", ", or None for no limit"
BELOW_2 = "a number between 0 and 2, beyond which the iterations may diverge"
CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "max_iter": _count("max_iter"),
    "max_inner_iter": _count("max_inner_iter", NO_LIMIT),
    "tol": _not_negative("tol"),
    "dual_tol": _not_negative("dual_tol", ", or None for tol"),
    "backward_tol": _not_negative("backward_tol"),
    "backward_max_iter": _count("backward_max_iter"),
    "max_time": _number("max_time", SECONDS, lambda limit: limit > 0.0, NO_LIMIT),
    "step_size": _not_negative("step_size", ", or None for the default"),
    "adapt": lambda adapt: checked_flag("adapt", adapt),
    "relaxation": _number("relaxation", BELOW_2, lambda by: 0.0 < by < 2.0),
    "temperature": _number("temperature", "a positive number", lambda t: 0.0 < t < np.inf),
    "trace": lambda trace: checked_flag("trace", trace),
    "threads": threads_or_default,
}
"""For each option that users set, the function that validates and converts it."""


EARLIER_OPTIONS = {
    "autodetect_acyclic": "omit it, since graphs need no such hint",
    "branch_and_bound": "use solve_map(exact=True), or PFactorGraph.solve_exact_map_ad3()",
    "eta": "use step_size",
}
"""Options of earlier solves, with their replacements."""

P = ParamSpec("P")
T = TypeVar("T")


def replaced_options(**advice: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator of functions that refuse the named options, with advice on each.

    The decorated function raises a TypeError if it is called with such an option.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            for name in options.keys() & advice.keys():
                raise TypeError(
                    f"{function.__qualname__}: {name} is an option of earlier libraries; "
                    f"{advice[name]}."
                )
            return function(*arguments, **options)

        return call

    return decorate
