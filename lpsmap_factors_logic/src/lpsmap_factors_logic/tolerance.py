"""When a marginal counts as being at a bound: `lpsmap_core.projections.tolerance` for arrays."""

from __future__ import annotations

from typing import Any

from lpsmap_core import FREE, LOWER, UPPER
from lpsmap_core.projections.tolerance import EPSILON, LARGEST

__all__ = ["bounded", "faces", "slack_array"]


def slack_array(xp: Any, level: Any, score: Any) -> Any:
    """Return what `slack` does, for arrays; `level` is to be in units of machine epsilon."""
    epsilon = xp.finfo(score.dtype).eps
    return xp.clip(epsilon * (level / EPSILON + 8 * xp.abs(score)), max=LARGEST)


def faces(xp: Any, m: Any, slack: Any) -> Any:
    """Return the face codes of marginals ``m``."""
    at_bound = xp.where(m >= 1 - slack, UPPER, FREE)
    return xp.astype(xp.where(m <= slack, LOWER, at_bound), xp.int8)


def bounded(xp: Any, z: Any, delta: Any, face: Any) -> Any:
    """Return ``z`` with exact values at its bounds."""
    inside = xp.where(face == UPPER, 1 / delta, z)
    return xp.where(face == LOWER, xp.zeros_like(z), inside)
