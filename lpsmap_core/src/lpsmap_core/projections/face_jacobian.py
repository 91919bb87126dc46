"""The derivative of a local problem's solution by its face codes, as a kernel and in array code.

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
    TIED,
    TIGHT,
    Direction,
    Factors,
    LocalSolution,
    Product,
)
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf, summing_leaf


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
