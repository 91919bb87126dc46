"""Projection onto the simplex, for rows of which one slot is chosen: `Xor`, `Or`, `AtMostOne`.

This is the problem of `lpsmap_dynamic.project_budget_rows` with unit costs and ``B = 1``. While
the sum is 1, no slot exceeds its upper bound. In terms of the marginals ``m = delta * z``, with
``x = delta * a`` and ``q = delta^2``, the solution is ``m_i = max(0, x_i - t * q_i)``. Newton's
method finds the threshold ``t`` (Michelot 1986).
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import LOWER, UPPER, LocalScores, LocalSolution, kernel, largest_arity, leaf
from lpsmap_core.api import (
    BOUND_LEVEL,
    ByteArray,
    FloatArray,
    IntArray,
    bound_slack,
    summing_leaf,
)
from lpsmap_dynamic import clip_row
from lpsmap_factors_logic.sum_constrained import EXACTLY

GUESS_MARGIN = 4 * float(np.finfo(np.float64).eps)
"""Relative amount by which a guessed threshold is lowered, to undo its rounding."""

MAX_GUESS_SUM = 1000.0
"""Largest sum of a row at a guess, so that few digits are lost."""


@kernel
def project_simplex_rows(
    rows: IntArray, offsets: IntArray, scores: LocalScores, solution: LocalSolution, sense: float
) -> None:
    """Project rows under ``sum_i delta_i z_i = 1`` (or ``<=``, or ``>=``, by `sense`).

    The face and the branch on entry are an initial guess, such as those of an earlier solution; a
    good guess saves steps. Records are unpacked here, because passing them on is slow for short
    rows.
    """
    a, delta, _ = scores
    z, _, face, branch = solution
    widest = largest_arity(rows, offsets)
    x, q = np.empty(widest), np.empty(widest)
    for r in rows:
        lo, hi = np.uint64(offsets[r]), np.uint64(offsets[r + 1])
        tight = sense == EXACTLY or (branch[r] == 1 and lo < hi)
        if not tight:
            total = clip_row(lo, hi, a, delta, z, face)
            branch[r] = (total - 1.0) * sense < 0.0
            if branch[r] == 0:
                continue
        t, s, guessing = 0.0, np.inf, True
        while s == np.inf:
            guess = _fill(lo, hi, a, delta, face, x, q)
            t, s = simplex_threshold(hi - lo, guess if guessing else -np.inf, x, q)
            guessing = False
        if tight and (t + s) * sense > 0.0:  # the multiplier has the wrong sign
            clip_row(lo, hi, a, delta, z, face)
            branch[r] = 0
            continue
        if _write_simplex_row(lo, hi, a, delta, t, s, z, face) < 2:
            _write_single(lo, hi, a, delta, z, face)
        branch[r] = 1


@summing_leaf
def _fill(
    lo: np.uint64,
    hi: np.uint64,
    a: FloatArray,
    delta: FloatArray,
    face: ByteArray,
    x: FloatArray,
    q: FloatArray,
) -> float:
    """Write x and q; return the threshold of the guessed face, or -inf without a guess."""
    n, support, sum_x, sum_q = hi - lo, 0.0, 0.0, 0.0
    for i in range(n):
        y, w = delta[lo + i] * a[lo + i], delta[lo + i] * delta[lo + i]
        x[i], q[i] = y, w
        above = np.float64(face[lo + i] != LOWER)  # a factor in place of a branch, to vectorise
        support += above
        sum_x += y * above
        sum_q += w * above
    if support == 0.0 or support == np.float64(n):
        return -np.inf
    return (sum_x - 1.0) / sum_q


@leaf
def simplex_threshold(
    n: np.uint64, guess: float, x: FloatArray, q: FloatArray
) -> tuple[float, float]:
    """Return ``t, s`` with ``sum_i max(0, x_i - (t + s) q_i) = 1``.

    This is Newton's method from the left on a convex function: the number of slots above the
    threshold only decreases, and the step from the right slots is exact (Michelot 1986). The
    threshold of any subset of slots that makes up the sum alone is a lower bound, from which the
    method can start: the support of an earlier solution (`guess`), or the best single slot for a
    guess of -inf. Relative to this bound, x has values around 1, so neither the rounding of large
    scores nor forbidden variables affect the sums. A guess that would lose digits is rejected: `s`
    is then inf. Overwrites the first `n` entries of x.
    """
    t = guess
    if t == -np.inf:
        for i in range(n):
            t = max(t, (x[i] - 1.0) / q[i])
    t -= GUESS_MARGIN * abs(t)
    for i in range(n):
        x[i] -= t * q[i]
    n_kept, total, weight = _sum_above(n, 0.0, x, q)
    if guess > -np.inf and not 0.0 < total < MAX_GUESS_SUM:
        return t, np.inf
    s = 0.0
    while True:
        before = n_kept
        s += (total - 1.0) / weight
        n_kept, total, weight = _sum_above(n, s, x, q)
        if not n_kept < before:
            return t, s + (total - 1.0) / weight


@summing_leaf
def _sum_above(n: np.uint64, s: float, x: FloatArray, q: FloatArray) -> tuple[float, float, float]:
    """Return the number of slots above a threshold, their total excess and their sum of q."""
    n_kept, total, weight = 0.0, 0.0, 0.0
    for i in range(n):
        rest = x[i] - s * q[i]
        above = np.float64(rest > 0.0)
        n_kept += above
        total += max(rest, 0.0)
        weight += q[i] * above
    return n_kept, total, weight


@leaf
def _write_simplex_row(
    lo: np.uint64,
    hi: np.uint64,
    a: FloatArray,
    delta: FloatArray,
    t: float,
    s: float,
    z: FloatArray,
    face: ByteArray,
) -> int:
    """Write a row at the threshold ``t + s``; return the number of slots above it.

    Of the two parts, `s` is the accurate one.
    """
    level, free = BOUND_LEVEL / (hi - lo), 0
    for i in range(lo, hi):
        value = (a[i] - t * delta[i]) - s * delta[i]
        above = delta[i] * value > bound_slack(level, delta[i] * a[i])
        z[i] = max(value, 0.0) * above
        face[i] = not above  # LOWER or FREE
        free += above
    return free


@leaf
def _write_single(
    lo: np.uint64, hi: np.uint64, a: FloatArray, delta: FloatArray, z: FloatArray, face: ByteArray
) -> None:
    """Write a row with a single slot above the threshold, which rounding may have hidden."""
    highest, top = -np.inf, lo
    for i in range(lo, hi):
        bound = (delta[i] * a[i] - 1.0) / (delta[i] * delta[i])
        if bound > highest:
            highest, top = bound, np.uint64(i)
    z[top], face[top] = 1.0 / delta[top], UPPER
