"""Maximisation of the dual function of the arborescence polytope.

The function is piecewise quadratic. Semismooth Newton steps with a line search reach the right
piece, on which they are exact (Qi & Sun 1993). Where H, minus the Hessian, is singular, the
function is linear along the null space of H until an arc enters a support.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, leaf
from lpsmap_factors_struct.arborescence_polytope.dual import (
    EPSILON,
    TINY,
    TreeDual,
    add_up,
    cuts_of,
    evaluate,
    list_cuts,
    second_derivatives,
)
from lpsmap_factors_struct.arborescence_polytope.pivoted_cholesky import (
    DEPENDENT,
    factorise,
    solve_lower,
    solve_upper,
)
from lpsmap_factors_struct.arrays import copy

GROWTH = 8.0
"""Ratio of successive scales on the way from scaled-down scores to the scores; a power of 2."""
MAX_SCALE = 1e300
"""Maximum factor by which scores are scaled down."""
MAX_STEPS = 1000
"""Maximum number of Newton steps. Ten usually suffice; a sentence of 159 words with 84 cuts took
141."""
MAX_VIOLATION = 1e3
"""Ratio of a cut's violation to rounding beyond which the last steps have ended too early."""
SHORT_STEP = 0.05
"""Fraction of a Newton step below which the line search goes on: kinks can lie near its start."""
MAX_TRIALS = 60
"""Maximum number of points that a line search evaluates."""


@leaf
def maximise(
    dual: TreeDual, n: int, width: int, count: int, free: int, tolerance: float, again: bool
) -> tuple[float, bool]:
    """Find the optimal multipliers of the cuts, and x, starting from ``sigma``.

    Parameters
    ----------
    free
        Number of leading cuts that hold with equality, 0 or 1. Their multipliers have any sign.
    tolerance
        Allowed violation of a cut, apart from rounding.
    again
        Whether x belongs to the multipliers already, except for words that were in no cut before.

    Returns
    -------
    float
        An upper bound of the violation of every cut.
    bool
        Whether the multipliers are optimal, up to a violation of `MAX_VIOLATION` times rounding.
    """
    list_cuts(dual, n, count)
    evaluate(dual, n, width, count, not again)
    excess, allowed = _climb(dual, n, width, count, free, tolerance)
    if not excess > allowed or interrupted():
        return allowed, True
    # For scores much larger than 1 the function is almost piecewise linear, and kinks can make
    # steps very short. This does not happen for scaled-down scores. As these grow, the multipliers
    # are tracked, while the solution moves from the interior of the polytope to its boundary.
    y, margin, sigma = dual.y[: n * width], dual.margin[:n], dual.sigma[:count]
    size = min(dual.size[0], MAX_SCALE)
    levels = int(np.ceil(np.log(size) / np.log(GROWTH)))
    scale = GROWTH**levels
    y /= scale
    margin /= scale
    sigma /= scale
    dual.size[0] = 1.0
    for _ in range(levels):
        evaluate(dual, n, width, count, True)
        _climb(dual, n, width, count, free, tolerance)
        y *= GROWTH
        margin *= GROWTH
        sigma *= GROWTH
    evaluate(dual, n, width, count, True)
    excess, allowed = _climb(dual, n, width, count, free, tolerance)
    return max(excess, allowed), not excess > MAX_VIOLATION * allowed


@leaf
def _climb(
    dual: TreeDual, n: int, width: int, count: int, free: int, tolerance: float
) -> tuple[float, float]:
    """Take Newton steps from a point that has been evaluated.

    Returns an upper bound of the violation of every cut, and the part that rounding explains.
    """
    sigma, gradient, order = dual.sigma, dual.gradient, dual.order
    excess, allowed = 0.0, 0.0
    for _ in range(MAX_STEPS):
        terms = 16 + 2 * dual.n_on[:n].sum()  # of the sum of x inside a cut
        allowed = tolerance + terms * EPSILON * dual.size[0]
        size, excess = 0, 0.0
        for k in range(count):
            held = k < free or sigma[k] > 0.0
            excess = max(excess, abs(gradient[k]) if held else gradient[k])
            order[size] = k
            size += held or gradient[k] > allowed
        if not excess > allowed:
            break
        second_derivatives(dual, n, width, count)
        flat, limit = _ascent(dual, count, size, free)
        if not _search(dual, n, width, count, flat, limit) or interrupted():
            break
    return excess, allowed


@leaf
def _ascent(dual: TreeDual, count: int, size: int, free: int) -> tuple[bool, float]:
    """Choose a direction over the cuts ``order[:size]``.

    Returns whether the function is linear along it, and the step at which the first multiplier
    becomes zero.
    """
    sigma, direction, order = dual.sigma, dual.direction, dual.order
    while True:
        flat, limit, kept = _newton(dual, count, size), np.inf, 0
        for i in range(size):
            k = order[i]
            if k >= free and direction[k] < 0.0:
                limit = min(limit, sigma[k] / -direction[k])
                if sigma[k] == 0.0:
                    continue  # it would become negative, and stays zero
            order[kept] = k
            kept += 1
        if limit > 0.0 or kept == 0:
            return flat, limit
        size = kept


@leaf
def _newton(dual: TreeDual, count: int, size: int) -> bool:
    """Write the Newton direction, or a null vector of H along which the function rises.

    Returns whether the direction is a null vector.
    """
    direction, order, factor, gradient = dual.direction, dual.order, dual.factor, dual.gradient
    rank = factorise(dual.hessian, order, size, factor)
    direction[:count] = 0.0
    steepest = 0.0
    for i in range(rank):
        direction[order[i]] = gradient[order[i]]
        steepest = max(steepest, abs(gradient[order[i]]))
    solve_lower(factor, order, rank, direction)
    dependent, slope = -1, 0.1 * steepest
    for i in range(rank, size):
        rest = gradient[order[i]]
        for j in range(rank):
            rest -= factor[i, j] * direction[order[j]]
        if abs(rest) > abs(slope):
            dependent, slope = i, rest
    if dependent >= 0:
        sign = 1.0 if slope > 0.0 else -1.0
        for j in range(rank):
            direction[order[j]] = -sign * factor[dependent, j]
        direction[order[dependent]] = sign
    solve_upper(factor, order, rank, direction)
    return dependent >= 0


@leaf
def _search(dual: TreeDual, n: int, width: int, count: int, flat: bool, limit: float) -> bool:
    """Move to about the maximum along the direction, at most by `limit`; return whether it moved.

    The derivative along a line is decreasing and piecewise linear. Its zero is found by Newton's
    method, safeguarded by a bracket.
    """
    sigma, base, direction = dual.sigma, dual.base, dual.direction
    copy(sigma[:count], base)
    start = _slope(dual, count)
    if not start > 0.0:
        return False
    low, high = 0.0, np.inf
    step = _next_arc(dual, n, width, count, start) if flat else 1.0
    for _ in range(MAX_TRIALS):
        at = min(step, limit)
        for k in range(count):
            sigma[k] = base[k] + at * direction[k]
            if at == limit and abs(sigma[k]) <= 4 * EPSILON * base[k]:
                sigma[k] = 0.0
        evaluate(dual, n, width, count, True)
        slope = _slope(dual, count)
        enough = at == limit or (at >= SHORT_STEP and not flat)
        if (slope >= 0.0 and enough) or abs(slope) <= 0.1 * start:
            return True
        if slope > 0.0:
            low = at
        else:
            high = at
        if interrupted():
            break
        curvature = _curvature(dual, n, width, count)
        if curvature > 0.0:
            step = at + slope / curvature
        elif slope > 0.0:
            step = at + _next_arc(dual, n, width, count, slope)
        if not low < step < high:
            step = 0.5 * (low + high) if high < np.inf else 2.0 * at
    return low > 0.0


@leaf
def _slope(dual: TreeDual, count: int) -> float:
    """Return the slope of the function along the direction."""
    slope = 0.0
    for k in range(count):
        slope += dual.direction[k] * dual.gradient[k]
    return slope


@leaf
def _curvature(dual: TreeDual, n: int, width: int, count: int) -> float:
    """Return minus the second derivative of the function along the direction."""
    q, head, on, n_on, member = dual.q, dual.head, dual.on, dual.n_on, dual.member
    own, direction, rate = dual.own, dual.direction, dual.rate
    curvature, magnitude = 0.0, 0.0
    for word in range(n):
        n_own, begin = cuts_of(word, dual.holding, count, own), word * width
        if n_own == 0:
            continue
        add_up(word, n, member, own, n_own, direction, rate)
        support = on[begin : begin + n_on[word]]
        mean, weight = 0.0, 0.0
        for i in support:
            mean += q[i] * rate[head[i - begin]]
            weight += q[i]
        mean /= max(weight, TINY)
        for i in support:
            one = rate[head[i - begin]]
            curvature += q[i] * (one - mean) * (one - mean)
            magnitude += q[i] * one * one
    return curvature if curvature > DEPENDENT * magnitude else 0.0


@leaf
def _next_arc(dual: TreeDual, n: int, width: int, count: int, slope: float) -> float:
    """Return the step at which the slope is zero, if it falls once the next arc has entered.

    On a linear piece all arcs of a row's support move together. The piece ends where the first arc
    enters a support.
    """
    y, q, head, x, on, n_on = dual.y, dual.q, dual.head, dual.x, dual.on, dual.n_on
    member, own, sigma, direction = dual.member, dual.own, dual.sigma, dual.direction
    rate, level = dual.rate, dual.level
    first, fall, negligible = np.inf, 1.0, 0.0
    for k in range(count):
        negligible = max(negligible, 1e-9 * abs(direction[k]))
    for word in range(n):
        n_own = cuts_of(word, dual.holding, count, own)
        if n_own == 0:
            continue
        add_up(word, n, member, own, n_own, direction, rate)
        add_up(word, n, member, own, n_own, sigma, level)
        begin, speed, weight = word * width, 0.0, 0.0
        for i in on[begin : begin + n_on[word]]:
            speed += q[i] * rate[head[i - begin]] * (x[i] > 0.0)
            weight += q[i] * (x[i] > 0.0)
        if weight == 0.0:  # the row's numbers are NaN
            continue
        speed /= weight
        for i in range(begin, begin + width):
            if x[i] > 0.0:
                continue
            above = head[i - begin]
            gain = speed - rate[above]
            if gain <= negligible:
                continue
            lacks = max(0.0, q[i] * (dual.tau[word] + level[above]) - y[i])
            if lacks < first * gain * q[i]:
                first = lacks / (gain * q[i])
                fall = gain * gain * q[i] * weight / (q[i] + weight)
    return first + slope / fall
