"""Marginals at their bounds, in array-API code."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from lpsmap_core.kernels.records import FREE, LOWER, UPPER, LocalSolution
from lpsmap_core.projections.tolerance import BOUND_LEVEL, bound_slack_array

__all__ = ["boxed_solution", "exact_at_bounds", "face_codes"]

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
