"""The step size of a component: its first value, and its balancing by the residuals."""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf

FIRST_STEP_SIZE = 5.0
"""First step size for scores near zero; it grows with their root mean square."""

FIRST_LINEAR = 0.25
"""First step size without the quadratic term, in units of the root mean square."""

BALANCE_PERIOD = 6
"""Number of iterations between two adjustments of a step size."""

BALANCE_RATIO, BALANCE_RATIO_ACCELERATED = 10.0, 50.0
"""Ratio of the residuals from which a step size is adjusted. With 5, and a period of 10, the step
sizes of large matchings fell too soon. An adjustment restarts acceleration, so the ratio is larger
there."""

BALANCE_FACTOR = 2.0
"""Factor of an adjustment."""

BALANCE_RATIO_LINEAR = 30.0
"""Ratio without the quadratic term. There means stay at a vertex for a while, and dual residuals
carry no information, so adjustments are rare: their period doubles each time."""

MAX_STEP_SIZE_RATIO = 1e4
"""A step size stays within this factor of its first value."""


def first_step_sizes(
    first_variable: IntArray, direct: BoolArray, eta: FloatArray, options: Options
) -> FloatArray:
    """Return the first step sizes: a multiple of the scale of the scores, like the duals.

    Parameters
    ----------
    first_variable
        For each component, its first variable; then the number of variables.
    direct
        For each component, whether it is solved without the loop; its step size is then zero.
    eta
        Scores of the variables.
    options
        Settings; they may include the first step size.
    """
    step_size = np.empty(len(direct))
    if options.step_size is not None:
        step_size[:] = options.step_size
    else:
        _first_step_sizes(first_variable, eta, options.quadratic, step_size)
    step_size[direct] = 0.0
    return step_size


@leaf
def _first_step_sizes(
    first_variable: IntArray, eta: FloatArray, quadratic: float, out: FloatArray
) -> None:
    for c in range(len(out)):
        out[c] = first_step_size(eta[first_variable[c] : first_variable[c + 1]], quadratic)


@leaf
def first_step_size(scores: FloatArray, quadratic: float) -> float:
    """Return ``first sqrt(quadratic + mean(eta^2))`` over the finite scores of a component.

    Without the quadratic term the scale of the scores is relative. If all are zero, any step size
    is right.
    """
    first = FIRST_STEP_SIZE if quadratic > 0.0 else FIRST_LINEAR
    scale, squares, count = 1.0, 0.0, 0.0
    for score in scores:
        if abs(score) < np.inf:
            scale = max(scale, abs(score))
    for score in scores:
        if abs(score) < np.inf:
            squares += (score / scale) ** 2  # which does not overflow
            count += 1.0
    mean = squares / max(count, 1.0)
    step_size: float = first * scale * np.sqrt(quadratic * (1.0 / scale) ** 2 + mean)
    return step_size if step_size > 0.0 else FIRST_STEP_SIZE


@leaf
def balance_ratio(iteration: int, quadratic: float, accelerated: bool) -> float:
    """Return the ratio of residuals from which a step size is adjusted; infinite for never."""
    n = iteration // BALANCE_PERIOD
    if n * BALANCE_PERIOD != iteration:
        return np.inf
    if quadratic == 0.0:
        return BALANCE_RATIO_LINEAR if n & (n - 1) == 0 else np.inf
    return BALANCE_RATIO_ACCELERATED if accelerated else BALANCE_RATIO


@leaf
def balanced_step_size(
    step_size: float, first: float, primal: float, dual: float, ratio: float
) -> float:
    """Return the next step size, adjusted if the residuals differ by a `balance_ratio`."""
    if primal > ratio * dual:
        other = step_size * BALANCE_FACTOR
    elif dual > ratio * primal:
        other = step_size / BALANCE_FACTOR
    else:
        return step_size
    return (
        other if first / MAX_STEP_SIZE_RATIO <= other <= first * MAX_STEP_SIZE_RATIO else step_size
    )
