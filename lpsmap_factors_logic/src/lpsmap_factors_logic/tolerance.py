"""Marginals at their bounds, in array-API code."""

from __future__ import annotations

from typing import Any

from lpsmap_core import FREE, LOWER, UPPER

__all__ = ["bounded", "faces"]


def faces(xp: Any, m: Any, slack: Any) -> Any:
    """Return the face codes of marginals ``m``."""
    at_bound = xp.where(m >= 1 - slack, UPPER, FREE)
    return xp.astype(xp.where(m <= slack, LOWER, at_bound), xp.int8)


def bounded(xp: Any, z: Any, delta: Any, face: Any) -> Any:
    """Return ``z`` with exact values at its bounds."""
    inside = xp.where(face == UPPER, 1 / delta, z)
    return xp.where(face == LOWER, xp.zeros_like(z), inside)
