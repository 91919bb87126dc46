"""The tolerance within which a marginal counts as being at a bound.

Closed forms compute marginals ``m = delta * z``, so a marginal whose true value is 0 can come out
slightly larger. The rounding has two sources: sums over a row, which round relative to the mean
marginal of the row, and the scores, which round relative to their size.
"""

from __future__ import annotations

from typing import Any

from lpsmap_jit.compile import leaf

__all__ = ["BOUND_LEVEL", "EPSILON", "bound_slack", "bound_slack_array"]

EPSILON = 2.0**-52
"""Distance from 1 to the next larger float64."""
BOUND_LEVEL = 4096 * EPSILON
"""Slack relative to the mean marginal of a row: about 1e-12."""
SCORE_ROUNDING = 8 * EPSILON
"""Slack relative to the score from which a marginal was computed."""
MAX_SLACK = 1e-6
"""Maximum slack: forbidden variables have huge scores."""


@leaf
def bound_slack(level: float, score: float) -> float:
    """Return the distance from a bound within which a marginal counts as being at it.

    Parameters
    ----------
    level
        Slack for sums over the row, such as `BOUND_LEVEL` times the mean marginal; 0 if nothing was
        summed.
    score
        The score from which the marginal was computed.
    """
    return min(level + SCORE_ROUNDING * abs(score), MAX_SLACK)


def bound_slack_array(xp: Any, level: Any, score: Any) -> Any:
    """Compute `bound_slack` for arrays of any library and precision.

    Parameters
    ----------
    xp
        The namespace of the arrays.
    level, score
        As for `bound_slack`, for float64; the slack is scaled to the precision of `score`.
    """
    epsilon = xp.finfo(score.dtype).eps
    slack = epsilon * (level / EPSILON + SCORE_ROUNDING / EPSILON * xp.abs(score))
    return xp.clip(slack, max=MAX_SLACK)
