"""Box-constrained projections under one constraint on a weighted sum.

Solves ``argmin 1/2 ||z - a||^2  s.t.  0 <= z <= 1 / delta,  <c * delta, z> = B`` (or ``<=``), the
quadratic program of Niculae & Martins 2020, appendix D.1.3. In terms of the marginals
``m = delta * z``, with ``x = delta * a`` and ``q = c * delta^2``, the solution is

    m_i = clip(x_i + tau * q_i, 0, 1),     sum_i c_i m_i = B,

where ``tau`` is 0 if the inequality holds without it (lemma 3). The sum is piecewise linear and
nondecreasing in ``tau``. On the free slots, which lie strictly between their bounds, the Jacobian
is ``I - w w^T / <w, w>`` with ``w = c * delta`` if the constraint holds with equality, else ``I``
(proposition 6): see `lpsmap_core.api.sum_constrained_jvp`.

The kernels use unsigned indices. For signed ones numba adds tests for negative values, which take
longer than the arithmetic.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import (
    FREE,
    LOWER,
    UPPER,
    Factors,
    LocalScores,
    LocalSolution,
    kernel,
    largest_arity,
    leaf,
)
from lpsmap_core.api import BOUND_LEVEL, ByteArray, FloatArray, IntArray, bound_slack

DOMINANT = 1e5
"""Scores of forced slots are larger; see `CLOSED_FORM_MULTIPLE` of core."""


@leaf
def clip_row(
    lo: np.uint64, hi: np.uint64, a: FloatArray, delta: FloatArray, z: FloatArray, face: ByteArray
) -> float:
    """Write a row without its sum constraint; return the sum of its marginals.

    The bound 0 needs no slack here, because nothing is summed.
    """
    total = 0.0
    for i in range(lo, hi):
        m, upper = delta[i] * a[i], 1.0 / delta[i]
        at_upper = m >= 1.0 - BOUND_LEVEL
        total += min(max(m, 0.0), 1.0)
        z[i] = upper if at_upper else max(a[i], 0.0)
        face[i] = (m <= 0.0) * LOWER + at_upper * UPPER
    return total


@kernel
def project_budget_rows(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    """Project rows under ``sum_i c_i delta_i z_i <= B``, or ``= B``.

    The first parameter is B. The second, if there is one, is nonzero for an equality. The link
    parameter holds the costs c, which are 1 without it.
    """
    offsets, parameters, costs = factors.offsets, factors.parameters, factors.link_parameter
    a, delta, _ = scores
    z, _, face, branch = solution
    widest = largest_arity(rows, offsets)
    x, q, c = np.empty(widest), np.empty(widest), np.ones(widest)
    for r in rows:
        lo, hi = np.uint64(offsets[r]), np.uint64(offsets[r + 1])
        n, total, all_costs, largest = np.uint64(0), 0.0, 0.0, 0.0
        for i in range(lo, hi):
            if costs.size > 0:
                c[n] = costs[i]
            x[n] = delta[i] * a[i]
            q[n] = c[n] * delta[i] * delta[i]
            total += c[n] * min(max(x[n], 0.0), 1.0)
            all_costs += c[n]
            largest = max(largest, x[n])
            n += np.uint64(1)
        budget = parameters[r, 0]
        exact = parameters.shape[1] > 1 and parameters[r, 1] != 0.0
        active = exact or total > budget
        branch[r] = active
        if not active:
            clip_row(lo, hi, a, delta, z, face)
            continue
        level = BOUND_LEVEL * min(1.0, budget / all_costs) if all_costs > 0.0 else 0.0
        if largest > DOMINANT:
            n, budget, total = _without_dominant(n, x, q, c, budget, total)
        tau, correction = _multiplier(n, x, q, c, budget, total)
        _write_box_row(lo, hi, a, delta, costs, tau, correction, level, z, face)


@leaf
def _without_dominant(
    n: np.uint64, x: FloatArray, q: FloatArray, c: FloatArray, budget: float, total: float
) -> tuple[np.uint64, float, float]:
    """Remove slots that are at 1 until all others are at 0: sums with them lose others' digits.

    Returns the number of the others, their budget and their sum at tau = 0. Nothing is removed if
    the budget does not suffice, and the constraint cannot be met.
    """
    spent, leaves, enters, others = 0.0, -np.inf, np.inf, 0.0
    for i in range(n):
        if x[i] > DOMINANT:
            spent += c[i]
            leaves = max(leaves, (1.0 - x[i]) / q[i]) if q[i] > 0.0 else leaves
        else:
            others += c[i] * min(max(x[i], 0.0), 1.0)
            enters = min(enters, -x[i] / q[i]) if q[i] > 0.0 else enters
    if leaves > enters or spent > budget * (1.0 + BOUND_LEVEL):
        return n, budget, total
    n_kept = np.uint64(0)
    for i in range(n):
        x[n_kept], q[n_kept], c[n_kept] = x[i], q[i], c[i]
        n_kept += np.uint64(x[i] <= DOMINANT)
    return n_kept, max(budget - spent, 0.0), others


@leaf
def _multiplier(
    n: np.uint64, x: FloatArray, q: FloatArray, c: FloatArray, budget: float, at_zero: float
) -> tuple[float, float]:
    """Return tau, and a small correction, with ``sum_i c_i clip(x_i + tau q_i, 0, 1) = budget``.

    This is variable fixing (Bitran & Hax 1981). If tau is too large, the slots at 0 are fixed; if
    it is too small, the slots at 1. The next tau solves for the other slots. Every round but the
    last fixes a slot. `at_zero` is the sum at tau = 0. Overwrites x and q, and c unless all costs
    are equal.
    """
    tau, total, solved = 0.0, at_zero, False
    while True:
        too_large = total > budget
        n_kept, sum_x, sum_q, fixed = np.uint64(0), 0.0, 0.0, 0.0
        for i in range(n):
            y, w, cost = x[i], q[i], c[i]
            x[n_kept], q[n_kept], c[n_kept] = y, w, cost
            m = y + tau * w
            keep = m > 0.0 if too_large else m < 1.0
            n_kept += np.uint64(keep)
            sum_x += cost * y * keep
            sum_q += cost * w * keep
            fixed += cost * (not keep)
        if sum_q == 0.0:
            return tau, 0.0
        if not too_large:
            budget -= fixed
        if solved and n_kept == n:
            break
        n, solved = n_kept, True
        tau = (budget - sum_x) / sum_q
        total = 0.0
        for i in range(n):
            total += c[i] * min(max(x[i] + tau * q[i], 0.0), 1.0)
    rest = budget
    for i in range(n):
        rest -= c[i] * (x[i] + tau * q[i])
    return tau, rest / sum_q


@leaf
def _write_box_row(
    lo: np.uint64,
    hi: np.uint64,
    a: FloatArray,
    delta: FloatArray,
    costs: FloatArray,
    tau: float,
    correction: float,
    level: float,
    z: FloatArray,
    face: ByteArray,
) -> None:
    for i in range(lo, hi):
        w = delta[i] * costs[i] if costs.size > 0 else delta[i]
        value = (a[i] + tau * w) + correction * w
        m, margin = delta[i] * value, bound_slack(level, delta[i] * a[i])
        z[i], face[i] = value, FREE
        if m <= margin:
            z[i], face[i] = 0.0, LOWER
        elif m >= 1.0 - margin:
            z[i], face[i] = 1.0 / delta[i], UPPER
