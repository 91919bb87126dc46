"""Projections under one constraint on a weighted sum, in array-API code."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from lpsmap_core import Factor, LocalSolution
from lpsmap_core.api import (
    BOUND_LEVEL,
    bound_slack_array,
    exact_at_bounds,
    face_codes,
    free_jvp,
)

AT_MOST, EXACTLY, AT_LEAST = -1.0, 0.0, 1.0
"""Senses of the sum constraint: the allowed sign of the sum minus its bound."""


def project(a: Any, delta: Any, costs: Any, budget: Any, sense: Any) -> LocalSolution:
    """Solve ``F`` problems of ``K`` slots in array-API code.

    Parameters
    ----------
    a, delta
        (F, K) scores and scales.
    costs
        (F, K) nonnegative costs, or None where all are 1.
    budget, sense
        (F, 1) arrays or numbers: the right-hand side, and `AT_MOST`, `EXACTLY` or `AT_LEAST`.
    """
    xp = array_namespace(a)
    c = xp.ones_like(delta) if costs is None else costs
    w, x = c * delta, delta * a
    total = xp.sum(c * xp.clip(x, 0.0, 1.0), axis=1, keepdims=True)
    budget, sense = xp.zeros_like(total) + budget, xp.zeros_like(total) + sense
    active = (sense == EXACTLY) | (sense * (total - budget) < 0)
    tau, correction = _multiplier_array(xp, x, w * delta, c, budget)
    z = xp.where(active, (a + tau * w) + correction * w, a)
    all_costs = xp.sum(c, axis=1, keepdims=True)
    mean = xp.clip(budget / xp.where(all_costs > 0, all_costs, 1.0), max=1.0)
    at_zero = xp.where(active, bound_slack_array(xp, BOUND_LEVEL * mean, x), 0.0)
    face = face_codes(xp, delta * z, xp.where(active, at_zero, xp.where(z > 0, BOUND_LEVEL, 0.0)))
    branch = xp.astype(active[:, 0], xp.int8)
    return LocalSolution(exact_at_bounds(xp, z, delta, face), a[:, :0], face, branch)


def _multiplier_array(xp: Any, x: Any, q: Any, c: Any, budget: Any) -> tuple[Any, Any]:
    """Return the multipliers of (F, K) arrays, each as an approximation and its correction.

    The approximation is found by bisection on the sorted breakpoints.
    """
    if x.shape[1] == 0:
        return xp.zeros_like(budget), xp.zeros_like(budget)
    positive = q > 0
    divisor = xp.where(positive, q, 1.0)
    enter = xp.where(positive, -x / divisor, 0.0)
    leave = xp.where(positive, (1 - x) / divisor, 0.0)
    points = xp.sort(xp.concat([enter, leave], axis=1), axis=1)
    # invariant: the first below[f] breakpoints of row f give too small a sum, above[f] does not
    last = points.shape[1] - 1
    below = xp.zeros_like(budget, dtype=xp.int64)
    above = below + last
    for _ in range(last.bit_length()):
        middle = (below + above) // 2
        tau = xp.take_along_axis(points, middle, axis=1)
        enough = xp.sum(c * xp.clip(x + tau * q, 0.0, 1.0), axis=1, keepdims=True) >= budget
        above = xp.where(enough, middle, above)
        below = xp.where(enough, below, xp.clip(middle + 1, max=last))
    right = xp.take_along_axis(points, above, axis=1)
    left = xp.take_along_axis(points, xp.clip(above - 1, min=0), axis=1)
    free = positive & (enter <= left) & (leave >= right) & (left < right)
    upper = positive & (leave <= left)
    cost, weight = xp.where(free, c, 0.0), xp.where(free, c * q, 0.0)
    slope = xp.sum(weight, axis=1, keepdims=True)
    flat = slope == 0
    rest = budget - xp.sum(xp.where(upper, c, 0.0), axis=1, keepdims=True)
    return _refined(xp, x, q, cost, xp.where(flat, 1.0, slope), rest, flat, right)


def _refined(
    xp: Any, x: Any, q: Any, cost: Any, slope: Any, rest: Any, flat: Any, right: Any
) -> tuple[Any, Any]:
    """Solve ``sum_i cost_i (x_i + tau q_i) = rest``, with one step of iterative refinement."""
    tau = (rest - xp.sum(cost * x, axis=1, keepdims=True)) / slope
    tau = xp.where(flat, right, tau)
    residual = rest - xp.sum(cost * (x + tau * q), axis=1, keepdims=True)
    return tau, xp.where(flat, 0.0, residual / slope)


def jvp(
    cls: type[Factor],
    solution: LocalSolution,
    d_u: Any,
    d_v: Any,
    delta: Any,
    parameters: Any,
    link_parameter: Any,
) -> tuple[Any, Any]:
    """Multiply local Jacobians, as `Factor.jvp` of types without tied slots."""
    return free_jvp(solution, d_u, delta, link_parameter), d_v
