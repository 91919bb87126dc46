"""When a marginal counts as being at a bound.

Closed forms find marginals ``m = delta * z`` by arithmetic, so that one which is 0 in truth can
come out as a little more. Two things make that little: sums over a row, which round relative to the
row's mean marginal, and the scores themselves, which round relative to their size.
"""

from __future__ import annotations

from lpsmap_core.kernels.compile import leaf

__all__ = ["EPSILON", "LARGEST", "LEVEL", "slack"]

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
