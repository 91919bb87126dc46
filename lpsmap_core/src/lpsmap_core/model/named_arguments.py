"""Options of earlier libraries, which are refused with advice."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["EARLIER_OPTIONS", "replaced_options"]

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
