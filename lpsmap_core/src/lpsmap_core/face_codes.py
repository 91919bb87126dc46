"""Face codes of local solutions: which marginals are at a bound, and the derivative they determine.

Closed forms compute marginals ``m = delta * z``, so a marginal whose true value is 0 can come out
slightly larger. The rounding has two sources: sums over a row, which round relative to the mean
marginal of the row, and the scores, which round relative to their size.

Slots at a bound do not move. On the free slots the Jacobian is ``I``, or ``I - w w^T / <w, w>``
with ``w = c * delta`` where the branch is `TIGHT`: a sum of marginals, weighted by the link
parameter c or by 1, holds with equality (Niculae & Martins 2020, proposition 6). On a group of tied
slots, whose marginals are equal, it is ``w w^T / <w, w>`` with ``w = 1 / delta`` (ibid., Eq. 127).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from lpsmap_core.kernels.records import (
    FREE,
    LOWER,
    TIED,
    TIGHT,
    UPPER,
    Direction,
    Factors,
    LocalSolution,
    Product,
)
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf, summing_leaf

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


# -------------------------------------------------------------------- the derivative


def face_jvp(solution: LocalSolution, d_u: Any, delta: Any, weights: Any) -> Any:
    """Multiply ``F`` local Jacobians with (F, K) vectors, in array-API code.

    Of the solution, `face` and `branch` count. The (F, K) weights of the sum are None where all are
    1.
    """
    xp = array_namespace(d_u)
    face, out = solution.face, free_jvp(solution, d_u, delta, weights)
    highest = int(xp.max(face)) if face.shape[0] * face.shape[1] else FREE
    for code in range(TIED, highest + 1):
        mine = face == code
        out += _projected(xp, xp.where(mine, 1 / delta, 0.0), xp.where(mine, d_u, 0.0))
    return out


def free_jvp(solution: LocalSolution, d_u: Any, delta: Any, weights: Any) -> Any:
    """Return the product of `face_jvp` if no slots are tied; never synchronises the device.

    The arguments `solution`, `d_u`, `delta` and `weights` are those of `face_jvp`.
    """
    xp = array_namespace(d_u)
    free = solution.face == FREE
    moved = xp.where(free, d_u, 0.0)
    tight = free & (solution.branch[:, None] == TIGHT)
    normal = xp.where(tight, delta if weights is None else delta * weights, 0.0)
    return moved - _projected(xp, normal, moved)


def _projected(xp: Any, w: Any, d: Any) -> Any:
    """Return the projections of vectors ``d`` onto ``w``, row by row; 0 where ``w`` is 0."""
    norm = xp.sum(w * w, axis=1, keepdims=True)
    return w * (xp.sum(w * d, axis=1, keepdims=True) / xp.where(norm > 0, norm, 1.0))


@leaf
def face_jvp_kernel(
    rows: IntArray, factors: Factors, direction: Direction, product: Product
) -> None:
    """Multiply local Jacobians with vectors, as kernels do. Additionals have no part in it."""
    sum_constrained_jvp(rows, factors, direction, product)
    offsets, delta, face = factors.offsets, direction.delta, direction.face
    for r in rows:
        lo, hi, highest = np.uint64(offsets[r]), np.uint64(offsets[r + 1]), FREE
        for i in range(lo, hi):
            highest = max(highest, face[i])
        for code in range(TIED, highest + 1):
            _average(lo, hi, code, delta, face, direction.d_u, product.out_u)


@leaf
def sum_constrained_jvp(
    rows: IntArray, factors: Factors, direction: Direction, product: Product
) -> None:
    """Like `face_jvp_kernel`, without tied slots: rows are not searched for groups."""
    offsets, costs = factors.offsets, factors.link_parameter
    delta, face, branch = direction.delta, direction.face, direction.branch
    d_u, out_u = direction.d_u, product.out_u
    for r in rows:
        lo, hi = np.uint64(offsets[r]), np.uint64(offsets[r + 1])
        shift = _shift(lo, hi, delta, costs, face, d_u) if branch[r] == TIGHT else 0.0
        for i in range(lo, hi):
            w = delta[i] * costs[i] if costs.size > 0 else delta[i]
            out_u[i] = d_u[i] - shift * w if face[i] == FREE else 0.0


@summing_leaf
def _shift(
    lo: np.uint64,
    hi: np.uint64,
    delta: FloatArray,
    costs: FloatArray,
    face: ByteArray,
    d_u: FloatArray,
) -> float:
    """Return ``<w, d_u> / <w, w>`` over the free slots. Elsewhere d_u may be anything, and NaN."""
    along, norm = 0.0, 0.0
    for i in range(lo, hi):
        w = delta[i] * costs[i] if costs.size > 0 else delta[i]
        free = face[i] == FREE
        moved = d_u[i] if free else 0.0
        along += w * moved
        norm += w * w * np.float64(free)
    return along / norm if norm > 0.0 else 0.0


@leaf
def _average(
    lo: np.uint64,
    hi: np.uint64,
    code: int,
    delta: FloatArray,
    face: ByteArray,
    d_u: FloatArray,
    out_u: FloatArray,
) -> None:
    """Write the products of one group of tied slots."""
    along, norm = 0.0, 0.0
    for i in range(lo, hi):
        if face[i] == code:
            along += d_u[i] / delta[i]
            norm += 1.0 / (delta[i] * delta[i])
    for i in range(lo, hi):
        if face[i] == code:
            out_u[i] = along / norm / delta[i]
