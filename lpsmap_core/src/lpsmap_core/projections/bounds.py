"""Marginals at their bounds, in array-API code, and the tolerance of being at a bound.

Closed forms compute marginals ``m = delta * z``, so a marginal whose true value is 0 can come out
slightly larger. The rounding has two sources: sums over a row, which round relative to the mean
marginal of the row, and the scores, which round relative to their size.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from lpsmap_core.kernels.records import FREE, LOWER, UPPER, LocalSolution
from lpsmap_jit.compile import leaf

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


MAX_CODE = 127
"""Largest face code."""


def boxed_solution(
    marginals: Any, delta: Any, scores: Any, *, code: Any = FREE, tight: Any = False
) -> LocalSolution:
    """Return the solution of local problems with given marginals, exactly at the bounds 0 and 1.

    `Factor.solve_sparsemap` of a type without additionals can return it: its faces and branches
    determine the derivative, which `Factor.jvp` computes.

    Parameters
    ----------
    marginals
        Broadcasts to (F, K): ``delta * z``. Marginals below 0, above 1, or within rounding of these
        bounds are moved to the bound.
    delta
        (F, K) the square roots of the degrees.
    scores
        Broadcasts to (F, K): magnitudes of the numbers from which a marginal was computed, such as
        ``delta * a``. They determine its rounding error.
    code
        Broadcasts to (F, K): how slots between the bounds move. `FREE`, independently; `TIED`, all
        with equal marginals; `TIED + 1` and so on for more such groups.
    tight
        (F, 1), or one for all: whether the free slots lie under a constraint on the sum of
        marginals, weighted by the parameter of ``per_link`` if there is one, that holds with
        equality.

    Raises
    ------
    ValueError
        If a code exceeds `MAX_CODE`.
    """
    xp = array_namespace(delta)
    if not isinstance(code, int) and 0 not in xp.asarray(code).shape and xp.max(code) > MAX_CODE:
        raise ValueError(f"code: got {int(xp.max(code))}; expected at most {MAX_CODE}, as in int8.")
    m = marginals + xp.zeros_like(delta)
    face = face_codes(xp, m, bound_slack_array(xp, BOUND_LEVEL, scores + xp.zeros_like(delta)))
    codes = xp.astype(xp.zeros_like(face) + code, xp.int8)
    branch = xp.astype(xp.any((face == FREE) & tight, axis=1), xp.int8)
    face = xp.where(face == FREE, codes, face)
    return LocalSolution(exact_at_bounds(xp, m / delta, delta, face), delta[:, :0], face, branch)


def face_codes(xp: Any, m: Any, slack: Any) -> Any:
    """Return the face codes of marginals `m`: `FREE` if not within `slack` of a bound.

    The arrays are of the namespace `xp`, as in `exact_at_bounds`.
    """
    at_bound = xp.where(m >= 1 - slack, UPPER, FREE)
    return xp.astype(xp.where(m <= slack, LOWER, at_bound), xp.int8)


def exact_at_bounds(xp: Any, z: Any, delta: Any, face: Any) -> Any:
    """Return `z`, arrays of the namespace `xp`, with exact values where `face` has a bound.

    The upper bounds are ``1 / delta``.
    """
    inside = xp.where(face == UPPER, 1 / delta, z)
    return xp.where(face == LOWER, xp.zeros_like(z), inside)
