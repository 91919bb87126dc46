"""When a marginal counts as being at a bound.

Closed forms find marginals ``m = delta * z`` by arithmetic, so that one which is 0 in truth can
come out as a little more. Two things make that little: sums over a row, which round relative to the
row's mean marginal, and the scores themselves, which round relative to their size.
"""

from __future__ import annotations

from typing import Any

from lpsmap_jit.compile import leaf

__all__ = ["BOUND_LEVEL", "bound_slack", "bound_slack_array"]

EPSILON = 2.0**-52
BOUND_LEVEL = 4096 * EPSILON
"""Slack relative to the mean marginal of a row: about 1e-12."""
SCORE_ROUNDING = 8 * EPSILON
"""Slack relative to the score that a marginal was computed from."""
LARGEST = 1e-6
"""Slack whatever the scores: forbidden variables have huge ones."""


@leaf
def bound_slack(level: float, score: float) -> float:
    """Return how near to a bound a marginal counts as at it.

    Parameters
    ----------
    level
        The slack that sums over the row need, such as `BOUND_LEVEL` times their mean marginal; 0 if
        nothing was summed.
    score
        The score that the marginal was computed from.
    """
    return min(level + SCORE_ROUNDING * abs(score), LARGEST)


def bound_slack_array(xp: Any, level: Any, score: Any) -> Any:
    """Return what `bound_slack` does, for arrays of any library and precision.

    Parameters
    ----------
    xp
        The arrays' namespace.
    level, score
        As for `bound_slack`, in units of float64: the slack is scaled to the precision of `score`.
    """
    epsilon = xp.finfo(score.dtype).eps
    slack = epsilon * (level / EPSILON + SCORE_ROUNDING / EPSILON * xp.abs(score))
    return xp.clip(slack, max=LARGEST)
