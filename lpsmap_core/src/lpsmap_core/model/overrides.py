"""Overrides of a factor type beyond its plain oracle."""

from __future__ import annotations

from typing import Literal

from lpsmap_core.model.factor import Factor
from lpsmap_core.projections.face_jacobian import face_jvp_kernel


def override_level(factor_type: type[Factor]) -> Literal[1, 2, 3]:
    """Return a factor type's level of override: 1 oracle, 2 compiled oracle, 3 closed form."""
    if factor_type.projection_kernel is not None or overrides(factor_type, "solve_sparsemap"):
        return 3
    return 1 if factor_type.map_kernel is None else 2


def has_kernels(factor_type: type[Factor]) -> bool:
    """Whether a factor type has a closed form as kernels.

    The derivative by face codes is not used for a type whose array code overrides it.
    """
    in_kernels, in_arrays = derivatives_of(factor_type)
    derived = factor_type.jvp_kernel is not None and (in_kernels or not in_arrays)
    return factor_type.projection_kernel is not None and derived


def has_array_code(factor_type: type[Factor]) -> bool:
    """Whether a factor type has a closed form in array-API code; see `has_kernels`."""
    in_kernels, in_arrays = derivatives_of(factor_type)
    return overrides(factor_type, "solve_sparsemap") and (in_arrays or not in_kernels)


def derivatives_of(factor_type: type[Factor]) -> tuple[bool, bool]:
    """Return whether a type overrides the derivative, as a kernel and in array code."""
    kernel = factor_type.jvp_kernel
    return kernel not in (None, face_jvp_kernel), overrides(factor_type, "jvp")


def overrides(factor_type: type[Factor], name: str) -> bool:
    """Whether a factor type overrides a class method of `Factor`."""
    method, inherited = getattr(factor_type, name), getattr(Factor, name)
    return getattr(method, "__func__", method) is not inherited.__func__
