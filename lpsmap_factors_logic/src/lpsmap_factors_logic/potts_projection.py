"""The local problem of `Potts`: a `Pair` for every state, under two sums.

With marginals p and q of the states of both variables, the marginal of equal states is at most
``sum_k min(p_k, q_k)`` and at least ``sum_k max(0, p_k + q_k - 1)``. So the problem is

    min sum_k 1/2 ((p_k - x_k)^2 / d_k + (q_k - y_k)^2 / e_k) - w m_k
    over p, q >= 0 with sum_k p_k = sum_k q_k = 1,

where d_k, e_k are degrees, and m_k is the marginal that both variables of a `Pair` with marginals
p_k, q_k are on. For multipliers s, t of the two sums, each state has the closed form of `Pair` at
the scores ``x_k - d_k s`` and ``y_k - e_k t`` (Niculae & Martins 2020, proposition 10). Newton's
method finds them: the dual function is concave, differentiable and piecewise quadratic.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import (
    FREE,
    LOWER,
    TIED,
    UNSOLVED,
    UPPER,
    Direction,
    Factors,
    LocalScores,
    LocalSolution,
    Product,
    kernel,
    largest_arity,
    leaf,
)
from lpsmap_core.api import (
    BOUND_LEVEL,
    ByteArray,
    FloatArray,
    IntArray,
    bound_slack,
    summing_leaf,
)
from lpsmap_factors_logic.simplex import simplex_threshold

COUNTED = TIED + 1
"""Face code of a free slot whose marginal counts in that of equal states."""

REPULSIVE, ATTRACTIVE = 1, 2
"""Branches, by the sign of the strength: the marginals of tied slots sum to 1, or are equal. Before
the first solve a branch is 0."""

TOLERANCE = 1e-15
"""Error of a sum for each of its slots at which the multipliers are exact."""

MAX_ERROR, ROUNDING = 1e-9, 1e-13
"""Largest error of the sums of a solution, and its growth with the strength. A smaller error that a
step does not halve is rounding."""

MAX_STEPS, MAX_WARM_STEPS = 100, 6
"""Maximum numbers of steps, of Newton's method, and from the multipliers of a guess."""

MAX_WARM_STRENGTH = 100.0
"""Maximum size of a strength with a guess: only the other starts reduce it, to keep digits."""

MAX_TRIALS = 100
"""Maximum number of sizes of a step."""


@kernel
def project_potts(
    rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution
) -> None:
    """Solve the local problems of `rows`.

    The face and the branch on entry are a guess, such as those of an earlier solution.
    """
    offsets, widest = factors.offsets, largest_arity(rows, factors.offsets)
    x, q, m, code = np.empty(widest), np.empty(widest), np.empty(widest), np.empty(widest, np.int8)
    for r in rows:
        lo, n = np.uint64(offsets[r]), np.uint64((offsets[r + 1] - offsets[r]) // 2)
        additional = factors.additional_offsets[r]
        w = scores.eta_v[additional]
        _write_centred(lo, np.uint64(0), n, scores, x, q)
        _write_centred(lo, n, n, scores, x, q)
        branch, error = ATTRACTIVE if w >= 0.0 else REPULSIVE, np.inf
        if solution.branch[r] == branch and abs(w) <= MAX_WARM_STRENGTH:
            s, t = _multipliers_of_face(n, w, x, q, m, code, solution.face[lo:])
            error = _maximise_dual(n, w, s, t, x, q, m, code, MAX_WARM_STEPS)
        if not error <= MAX_ERROR:
            if w >= 0.0:
                w, s, t = _attractive_start(n, w, x, q, m)
            else:
                w, s, t = _repulsive_start(n, w, x, q, m)
            error = _maximise_dual(n, w, s, t, x, q, m, code, MAX_STEPS)
        solution.v[additional] = _write_solution(lo, n, w, m, code, scores, solution)
        solution.branch[r] = branch if error <= _max_error(w) else UNSOLVED


@leaf
def _write_centred(
    lo: np.uint64, first: np.uint64, n: np.uint64, scores: LocalScores, x: FloatArray, q: FloatArray
) -> None:
    """Write a variable's degrees, and its scores less a multiple of these: the highest become 1."""
    a, delta = scores.a, scores.delta
    most = -np.inf
    for k in range(first, first + n):
        i = lo + np.uint64(k)
        x[k], q[k] = delta[i] * a[i], delta[i] * delta[i]
        most = max(most, (x[k] - 1.0) / q[k])
    for k in range(first, first + n):
        x[k] -= most * q[k]


@leaf
def _multipliers_of_face(
    n: np.uint64,
    w: float,
    x: FloatArray,
    q: FloatArray,
    m: FloatArray,
    code: ByteArray,
    face: ByteArray,
) -> tuple[float, float]:
    """Return the multipliers at which the marginals on a face sum to 1; `m`, `code` are workspaces.

    Slots at 1 move: both of a state together, or one alone.
    """
    together = TIED if w >= 0.0 else COUNTED
    for k in range(n):
        i, j = np.uint64(k), n + np.uint64(k)
        both = face[i] == UPPER and face[j] == UPPER
        code[i] = face[i] if face[i] != UPPER else (together if both else FREE)
        code[j] = face[j] if face[j] != UPPER else (together if both else FREE)
    sign = 1.0 if w >= 0.0 else -1.0
    _write_on_face(n, sign, 1.0, w, 0.0, 0.0, x, q, code, m)
    f, g, first, second, tied = _sums(n, 1.0, q, m, code)
    return _newton_step(f, g, first, second, sign * tied)


@leaf
def _attractive_start(
    n: np.uint64, w: float, x: FloatArray, q: FloatArray, m: FloatArray
) -> tuple[float, float, float]:
    """Return the strength and multipliers to start from, those of equal marginals.

    A strength beyond that from which all marginals are equal has the same solution, so it is
    reduced to keep the precision of the scores. `m` is a workspace.
    """
    for k in range(n):
        d, e = q[k], q[n + np.uint64(k)]
        m[k] = (e * x[k] + d * x[n + np.uint64(k)]) / (d + e)
        m[n + np.uint64(k)] = d * e / (d + e)
    low, high = simplex_threshold(n, -np.inf, m, m[n:])
    total = low + high
    most_first, most_second = -np.inf, -np.inf
    for k in range(n):
        d, e = q[k], q[n + np.uint64(k)]
        equal = max(0.0, m[k] - high * m[n + np.uint64(k)])  # `m` was reduced by `low`
        most_first = max(most_first, (x[k] - equal) / d)
        most_second = max(most_second, (x[n + np.uint64(k)] - equal) / e)
    w = min(w, most_first + most_second - total + 1.0)
    s = 0.5 * (most_first + w + total - most_second)
    return w, s, total + w - s


@leaf
def _repulsive_start(
    n: np.uint64, w: float, x: FloatArray, q: FloatArray, m: FloatArray
) -> tuple[float, float, float]:
    """Return the strength and multipliers to start from.

    They are those of two separate simplexes, and then of the same with the full penalty on the only
    state whose marginals sum to more than 1. A strength beyond that from which one of these is 0
    has the same solution, so it is reduced. `m` is a workspace.
    """
    for k in range(2 * n):
        m[k] = x[k]
    s, t = _thresholds(n, m, q)
    for k in range(n):
        i, j = np.uint64(k), n + np.uint64(k)
        if max(0.0, x[i] - s * q[i]) + max(0.0, x[j] - t * q[j]) > 1.0:
            for other in range(2 * n):
                m[other] = x[other]
            m[i] += w * q[i]
            m[j] += w * q[j]
            s, t = _thresholds(n, m, q)
            return max(w, -1.0 - min(x[i] / q[i] - s, x[j] / q[j] - t)), s, t
    return max(w, -1.0), s, t


@leaf
def _thresholds(n: np.uint64, m: FloatArray, q: FloatArray) -> tuple[float, float]:
    """Return the thresholds of two simplexes with the scores `m`, which are overwritten."""
    low, high = simplex_threshold(n, -np.inf, m, q)
    second_low, second_high = simplex_threshold(n, -np.inf, m[n:], q[n:])
    return low + high, second_low + second_high


@leaf
def _maximise_dual(
    n: np.uint64,
    w: float,
    s: float,
    t: float,
    x: FloatArray,
    q: FloatArray,
    m: FloatArray,
    code: ByteArray,
    max_steps: int,
) -> float:
    """Write the marginals and face codes of a solution; return the error of their sums.

    A step is accepted where the slope along it has fallen to a half, on either side of its maximum.
    """
    _write_marginals(n, w, s, t, x, q, m, code)
    f, g, first, second, tied = _sums(n, 1.0, q, m, code)
    error = max(abs(f), abs(g))
    for _ in range(max_steps):
        if error <= TOLERANCE * n:
            break
        ds, dt = _newton_step(f, g, first, second, tied if w >= 0.0 else -tied)
        slope, before = f * ds + g * dt, error
        size, low, high, at_low, at_high = 1.0, 0.0, np.inf, slope, 0.0
        for _ in range(MAX_TRIALS):
            _write_marginals(n, w, s + size * ds, t + size * dt, x, q, m, code)
            f, g, first, second, tied = _sums(n, 1.0, q, m, code)
            now = f * ds + g * dt
            if abs(now) <= 0.5 * slope:
                break
            if now > 0.0:
                low, at_low = size, now
            else:
                high, at_high = size, now
            share = min(max(at_low / (at_low - at_high), 0.1), 0.9)
            size = 2.0 * size if high == np.inf else low + share * (high - low)
        s, t, error = s + size * ds, t + size * dt, max(abs(f), abs(g))
        if error > 0.5 * before and error <= _max_error(w):
            break
    return error


@leaf
def _max_error(w: float) -> float:
    return MAX_ERROR + ROUNDING * abs(w)


@leaf
def _newton_step(
    f: float, g: float, first: float, second: float, tied: float
) -> tuple[float, float]:
    """Return the step of both multipliers for the errors f, g of the sums.

    The matrix has the degrees of the free slots of each variable on the diagonal, and those of the
    tied pairs, negative for a repulsive strength, in all entries. Where it is singular, entries of
    the same size make the step finite.
    """
    h = tied
    a, b = first + abs(h), second + abs(h)
    if h == 0.0:
        a, b = max(a, 1.0), max(b, 1.0)
    elif first + second == 0.0:
        a, b, h = 2.0 * a, 2.0 * b, 0.0
    determinant = a * b - h * h
    return (b * f - h * g) / determinant, (a * g - h * f) / determinant


@leaf
def _write_marginals(
    n: np.uint64,
    w: float,
    s: float,
    t: float,
    x: FloatArray,
    q: FloatArray,
    m: FloatArray,
    code: ByteArray,
) -> None:
    """Write marginals and face codes at the multipliers s, t; see `Pair`.

    A positive strength goes to the slot with the smaller marginal, which counts, or ties both. A
    negative one goes in full to both slots, which count then, to neither, or ties their sum to 1.
    """
    attractive = w >= 0.0
    low, high, top = min(w, 0.0), max(w, 0.0), np.inf if attractive else 1.0
    for k in range(n):
        i, j = np.uint64(k), n + np.uint64(k)
        d, e = q[i], q[j]
        a, b = x[i] - d * s, x[j] - e * t
        share = (b - a + e * w if attractive else 1.0 - a - b) / (d + e)
        at_low, at_high = share <= low, share >= high
        share = min(max(share, low), high)
        p = a + d * share
        r = b + e * (w - share if attractive else share)
        partner = p if attractive else 1.0 - p
        r = r if at_low or at_high else partner
        below, above = (FREE, COUNTED) if attractive else (COUNTED, FREE)
        of_first = above if at_high else (below if at_low else TIED)
        of_second = FREE if at_high else (COUNTED if at_low else TIED)
        code[i] = LOWER if p <= 0.0 else (UPPER if p >= top else of_first)
        code[j] = LOWER if r <= 0.0 else (UPPER if r >= top else of_second)
        m[i], m[j] = min(max(p, 0.0), top), min(max(r, 0.0), top)


@summing_leaf
def _sums(
    n: np.uint64, one: float, q: FloatArray, m: FloatArray, code: ByteArray
) -> tuple[float, float, float, float, float]:
    """Return what both sums exceed `one` by, and the degrees of free slots and of tied pairs."""
    f, g, first, second, tied = -one, -one, 0.0, 0.0, 0.0
    for k in range(n):
        i, j = np.uint64(k), n + np.uint64(k)
        f += m[i]
        g += m[j]
        first += q[i] if (code[i] == FREE) | (code[i] == COUNTED) else 0.0
        second += q[j] if (code[j] == FREE) | (code[j] == COUNTED) else 0.0
        tied += q[i] * q[j] / (q[i] + q[j]) if code[i] == TIED else 0.0
    return f, g, first, second, tied


@leaf
def _write_solution(
    lo: np.uint64,
    n: np.uint64,
    w: float,
    m: FloatArray,
    code: ByteArray,
    scores: LocalScores,
    solution: LocalSolution,
) -> float:
    """Write z and face, exactly at the bounds; return the marginal of equal states."""
    a, delta, z, face = scores.a, scores.delta, solution.z, solution.face
    for k in range(n):
        i, j = lo + np.uint64(k), lo + n + np.uint64(k)
        first, second = (
            delta[i] * abs(a[i]) + delta[i] * delta[i] * abs(w),
            delta[j] * abs(a[j]) + delta[j] * delta[j] * abs(w),
        )
        tied = code[k] == TIED
        margin = bound_slack(BOUND_LEVEL / n, first + (second if tied else 0.0))
        face[i] = LOWER if m[k] <= margin else code[k]
        margin = bound_slack(BOUND_LEVEL / n, second + (first if tied else 0.0))
        face[j] = LOWER if m[n + np.uint64(k)] <= margin else code[n + np.uint64(k)]
    _round_single(lo, np.uint64(0), n, m, solution)
    _round_single(lo + n, n, n, m, solution)
    equal = 0.0
    for k in range(n):
        i, j = lo + np.uint64(k), lo + n + np.uint64(k)
        p, r = _rounded(face[i], m[k]), _rounded(face[j], m[n + np.uint64(k)])
        z[i], z[j] = p / delta[i], r / delta[j]
        if (face[i] == TIED) != (face[j] == TIED):  # one of them is at a bound
            loose = COUNTED if w >= 0.0 else FREE
            face[i] = loose if face[i] == TIED else face[i]
            face[j] = loose if face[j] == TIED else face[j]
        equal += min(p, r) if w >= 0.0 else (max(0.0, p + r - 1.0) if code[k] != TIED else 0.0)
    _tie_last_pair(lo, n, face)
    return min(equal, 1.0)


@leaf
def _tie_last_pair(lo: np.uint64, n: np.uint64, face: ByteArray) -> None:
    """Tie the only pair of free slots beside tied ones: the sums tie it anyway.

    Which pair is free depends on the start, and the polish waits until faces stay the same.
    """
    n_first, n_second, n_tied, last = 0, 0, 0, np.uint64(0)
    for k in range(n):
        first, second = face[lo + np.uint64(k)], face[lo + n + np.uint64(k)]
        free = (first == FREE) | (first == COUNTED)
        n_tied += first == TIED
        n_first += free
        n_second += (second == FREE) | (second == COUNTED)
        last = np.uint64(k) if free else last
    i, j = lo + last, lo + n + last
    if n_tied > 0 and n_first == 1 and n_second == 1 and not _at_bound(face[j]):
        face[i] = face[j] = TIED


@leaf
def _rounded(face: int, m: float) -> float:
    """Return a marginal, exactly at the bounds."""
    return 0.0 if face == LOWER else (1.0 if face == UPPER else m)


@leaf
def _round_single(
    lo: np.uint64, first: np.uint64, n: np.uint64, m: FloatArray, solution: LocalSolution
) -> None:
    """Set the only slot of a variable that is not 0 to 1."""
    n_above, largest = 0, np.uint64(0)
    for k in range(n):
        n_above += solution.face[lo + np.uint64(k)] != LOWER
        largest = np.uint64(k) if m[first + np.uint64(k)] > m[first + largest] else largest
    if n_above < 2:
        solution.face[lo + largest] = UPPER


@kernel
def multiply_potts(
    rows: IntArray, factors: Factors, direction: Direction, product: Product
) -> None:
    """Multiply the Jacobians of `rows`: of (z, v) in (a, w), with both sums constant."""
    offsets, widest = factors.offsets, largest_arity(rows, factors.offsets)
    x, q, m = np.empty(widest), np.empty(widest), np.empty(widest)
    for r in rows:
        lo, n = np.uint64(offsets[r]), np.uint64((offsets[r + 1] - offsets[r]) // 2)
        delta, face = direction.delta[lo:], direction.face[lo:]
        for k in range(2 * n):
            x[k], q[k] = delta[k] * direction.d_u[lo + np.uint64(k)], delta[k] * delta[k]
        d_w = direction.d_v[factors.additional_offsets[r]]
        sign = 1.0 if direction.branch[r] == ATTRACTIVE else -1.0
        _write_on_face(n, sign, 0.0, d_w, 0.0, 0.0, x, q, face, m)
        f, g, first, second, tied = _sums(n, 0.0, q, m, face)
        s, t = _newton_step(f, g, first, second, sign * tied)
        _write_on_face(n, sign, 0.0, d_w, s, t, x, q, face, m)
        for k in range(2 * n):
            product.out_u[lo + np.uint64(k)] = m[k] / delta[k]
        product.out_v[factors.additional_offsets[r]] = _sum_of_equal(n, sign, m, face)


@leaf
def _write_on_face(
    n: np.uint64,
    sign: float,
    one: float,
    w: float,
    s: float,
    t: float,
    x: FloatArray,
    q: FloatArray,
    code: ByteArray,
    m: FloatArray,
) -> None:
    """Write the marginals on a face, 0 at bounds; for moves on a face, `one` is 0."""
    of_tied = one if sign < 0.0 else 0.0
    for k in range(n):
        i, j = np.uint64(k), n + np.uint64(k)
        d, e = q[i], q[j]
        a, b = x[i] - d * s, x[j] - e * t
        tied = (e * a + d * (sign * b + of_tied + (e * w if sign > 0.0 else 0.0))) / (d + e)
        counted, other = a + d * w, b + e * w
        a, b = counted if code[i] == COUNTED else a, other if code[j] == COUNTED else b
        a, b = 0.0 if _at_bound(code[i]) else a, 0.0 if _at_bound(code[j]) else b
        m[i] = tied if code[i] == TIED else a
        m[j] = sign * tied + of_tied if code[j] == TIED else b


@leaf
def _at_bound(code: int) -> bool:
    return (code == LOWER) | (code == UPPER)


@summing_leaf
def _sum_of_equal(n: np.uint64, sign: float, m: FloatArray, code: ByteArray) -> float:
    """Return the sum of what counts in the marginal of equal states."""
    equal = 0.0
    for k in range(n):
        i, j = np.uint64(k), n + np.uint64(k)
        first = (code[i] == COUNTED) | ((code[i] == TIED) & (sign > 0.0))
        equal += (m[i] if first else 0.0) + (m[j] if code[j] == COUNTED else 0.0)
    return equal
