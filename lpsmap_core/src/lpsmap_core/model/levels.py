"""What a factor type brings besides its plain oracle."""

from __future__ import annotations

from typing import Literal

from lpsmap_core.model.factor import Factor

__all__ = ["has_array_code", "override_level"]


def override_level(factor_type: type[Factor]) -> Literal[1, 2, 3]:
    """Return a factor type's level of override: 1 oracle, 2 compiled oracle, 3 closed form."""
    if factor_type.projection_kernel is not None or has_array_code(factor_type):
        return 3
    return 1 if factor_type.map_kernel is None else 2


def has_array_code(factor_type: type[Factor]) -> bool:
    """Whether a factor type overrides ``solve_sparsemap`` in array-API code."""
    return factor_type.solve_sparsemap.__func__ is not Factor.solve_sparsemap.__func__  # type: ignore[attr-defined]
