"""The class of a factor type's Gibbs distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpsmap_core.model.factor import Factor

__all__ = ["gibbs_class"]


def gibbs_class(factor: Factor) -> Callable[..., Any]:
    """Return the class of the Gibbs distributions of a declaration's factors.

    Raises
    ------
    TypeError
        If the type cannot sum over structures, or has no such class.
    """
    make = type(factor).gibbs
    if make is None:
        factor.log_partition()  # raises an error for a type without sums
        raise TypeError(
            f"{type(factor).__name__} has sums over its structures, but its attribute gibbs is "
            "None; expected a class of distributions. Run pip install lpsmap-dynamic, and set "
            "gibbs = lpsmap_dynamic.Gibbs in the class."
        )
    return make
