"""What a factor type brings besides its plain oracle."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Literal

from lpsmap_core.kernels.records import KERNELS
from lpsmap_core.model.factor import Factor

__all__ = ["check_overrides", "has_array_code", "override_level"]

CLASS_METHODS = ("vertex_sizes", "solve_sparsemap", "jvp", "local_solver")
"""Overrides that serve many factors, and so are called on the type."""


def override_level(factor_type: type[Factor]) -> Literal[1, 2, 3]:
    """Return a factor type's level of override: 1 oracle, 2 compiled oracle, 3 closed form."""
    if factor_type.projection_kernel is not None or has_array_code(factor_type):
        return 3
    return 1 if factor_type.map_kernel is None else 2


def has_array_code(factor_type: type[Factor]) -> bool:
    """Whether a factor type overrides ``solve_sparsemap`` in array-API code."""
    method, inherited = factor_type.solve_sparsemap, Factor.solve_sparsemap
    return getattr(method, "__func__", method) is not inherited.__func__  # type: ignore[attr-defined]


@functools.cache
def check_overrides(factor_type: type[Factor]) -> None:
    """Refuse what cannot be called as kernels and class methods are.

    Raises
    ------
    TypeError
        If a kernel is no function, or a class method one of instances.
    """
    for name in KERNELS:
        kernel = getattr(factor_type, name)
        if kernel is not None and not callable(kernel):
            raise TypeError(
                f"{factor_type.__name__}.{name}: got {kernel!r}; expected a function that @kernel "
                "or @leaf has compiled, as a staticmethod, or None."
            )
    for name in CLASS_METHODS:
        if isinstance(inspect.getattr_static(factor_type, name), FunctionType):
            raise TypeError(
                f"{factor_type.__name__}.{name}: got a method of instances; expected one of the "
                "class, since it serves the factors of many. Put @classmethod above it."
            )
