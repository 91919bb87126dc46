"""When a marginal counts as being at a bound.

Closed forms find marginals ``m = delta * z`` by arithmetic, so that one which is 0 in truth can
come out as a little more. Two things make that little: sums over a row, which round relative to the
row's mean marginal, and the scores themselves, which round relative to their size.
"""

from __future__ import annotations

from typing import Any

from lpsmap_core import FREE, LOWER, UPPER, leaf

__all__ = ["LEVEL", "bounded", "faces", "slack", "slack_array"]

EPSILON = 2.0**-52
LEVEL = 4096 * EPSILON
"""Slack relative to the mean marginal of a row: about 1e-12."""
SCORE_ROUNDING = 8 * EPSILON
"""Slack relative to the score that a marginal was computed from."""
LARGEST = 1e-6
"""Slack whatever the scores: forbidden variables have huge ones."""


@leaf
def slack(level: float, score: float) -> float:
    """Return how near to a bound a marginal counts as at it."""
    return min(level + SCORE_ROUNDING * abs(score), LARGEST)


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
