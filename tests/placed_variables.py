"""Variables of the arguments of a factor type, placed on another graph."""

from __future__ import annotations

from typing import Any

from lpsmap_core import Variables

__all__ = ["placed_on"]


def placed_on(u: Variables, value: Any) -> Any:
    """Return an argument of a factor type with its variables on another graph."""
    if isinstance(value, Variables):
        return u[value.index] ^ value.negated
    if isinstance(value, (list, tuple)) and any(isinstance(x, Variables) for x in value):
        return [placed_on(u, x) for x in value]
    return value
