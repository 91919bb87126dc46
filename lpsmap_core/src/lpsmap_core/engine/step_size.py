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

BALANCE_RATIO = 10.0
"""Ratio of the residuals from which a step size is adjusted. With 5, and a period of 10, the step
sizes of large matchings fell too soon."""

BALANCE_FACTOR = 2.0
"""Factor of an adjustment."""

ABSOLUTE_ITERATIONS, FAR_RESIDUAL = 40, 1e-3
"""Dual residuals count in units of the largest score, like the duals, from this iteration on, as
long as the copies disagree by more than the second number, and without the quadratic term. In units
of marginals, step sizes for large scores fall while the duals still have far to go. Most components
have finished before; and in the end both residuals have to fall to the same tolerance."""

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
def balanced_step_size(
    iteration: int,
    quadratic: float,
    step_size: float,
    first: float,
    primal: float,
    dual: float,
    largest_score: float,
) -> float:
    """Return the next step size, adjusted if one residual is much larger than the other.

    The `largest_score` counts as 1 if it is smaller and there is a quadratic term.

    Without the quadratic term, means stay at a vertex for a while, and dual residuals carry no
    information. Adjustments are rare then: their period doubles each time.
    """
    n = iteration // BALANCE_PERIOD
    if n * BALANCE_PERIOD != iteration or (quadratic == 0.0 and n & (n - 1) != 0):
        return step_size
    if quadratic == 0.0 or (iteration > ABSOLUTE_ITERATIONS and primal > FAR_RESIDUAL):
        dual /= largest_score
    if primal > BALANCE_RATIO * dual:
        other = step_size * BALANCE_FACTOR
    elif dual > BALANCE_RATIO * primal:
        other = step_size / BALANCE_FACTOR
    else:
        return step_size
    return (
        other if first / MAX_STEP_SIZE_RATIO <= other <= first * MAX_STEP_SIZE_RATIO else step_size
    )
