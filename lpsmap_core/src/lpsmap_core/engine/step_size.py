"""The step size of a component: its first value, and its balancing by the residuals."""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf

FIRST_STEP_SIZE = 5.0
"""First step size for scores near zero; it grows with their root mean square."""

MIN_SHARE = 0.1
"""Minimum root mean square in units of the largest score, for variables with weak scores beside
strong additionals."""

FIRST_LINEAR = 0.25
"""First step size without the quadratic term, in units of the largest score."""

BALANCE_PERIOD = 6
"""Number of iterations between two adjustments of a step size."""

BALANCE_RATIO = 10.0
"""Ratio of the residuals from which a step size is adjusted. With 5, and a period of 10, the step
sizes of large matchings fell too soon."""

BALANCE_FACTOR = 2.0
"""Factor of an adjustment."""

DRIFT_RATIO = 300.0
"""Ratio of the dual to the primal residual from which means drift at constant speed, inversely
proportional to the step size, while all copies agree: without the quadratic term this can last for
a thousand iterations."""

ABSOLUTE_ITERATIONS, FAR_RESIDUAL = 40, 1e-3
"""Dual residuals count in units of the largest score, like the duals, from this iteration on, as
long as the copies disagree by more than the second number, and without the quadratic term. In units
of marginals, step sizes for large scores fall while the duals still have far to go. Most components
have finished before; and in the end both residuals have to fall to the same tolerance."""

MAX_STEP_SIZE_RATIO = 1e4
"""A step size stays within this factor of its first value."""


def first_step_sizes(
    part: Part, direct: BoolArray, eta: FloatArray, eta_v: FloatArray, options: Options
) -> FloatArray:
    """Return the first step sizes: they follow the scale of the scores, like the duals.

    Parameters
    ----------
    part
        The part.
    direct
        For each component, whether it is solved without the loop; its step size is then zero.
    eta, eta_v
        Scores of its variables and of its additionals.
    options
        Settings; they may include the first step size.
    """
    step_size = np.empty(part.n_components)
    if options.step_size is not None:
        step_size[:] = options.step_size
    else:
        largest = part.largest_scores(eta, eta_v)
        _first_step_sizes(part.first_variable, eta, largest, options.quadratic, step_size)
    step_size[direct] = 0.0
    return step_size


@leaf
def _first_step_sizes(
    first_variable: IntArray,
    eta: FloatArray,
    largest: FloatArray,
    quadratic: float,
    out: FloatArray,
) -> None:
    for c in range(len(out)):
        scores = eta[first_variable[c] : first_variable[c + 1]]
        out[c] = first_step_size(scores, largest[c], quadratic)


@leaf
def first_step_size(scores: FloatArray, largest: float, quadratic: float) -> float:
    """Return ``5 sqrt(1 + mean(eta^2))`` over the finite scores of a component's variables.

    The mean square is at least that of a tenth of the `largest` finite score, additionals included.
    Without the quadratic term, the step size is a quarter of that score; if all are zero, any is
    right.
    """
    if quadratic == 0.0:
        return FIRST_LINEAR * (largest if largest > 0.0 else 1.0)
    unit, squares, count = max(largest, 1.0), 0.0, 0.0
    for score in scores:
        if abs(score) < np.inf:
            squares += (score / unit) ** 2  # which does not overflow
            count += 1.0
    share = max(MIN_SHARE * largest / unit, np.sqrt(squares / max(count, 1.0)))
    step_size: float = FIRST_STEP_SIZE * np.hypot(1.0, unit * share)
    return step_size


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
    information. Adjustments are rare then: their period doubles each time, unless means drift.
    """
    n = iteration // BALANCE_PERIOD
    rare = quadratic == 0.0 and not dual > DRIFT_RATIO * primal
    if n * BALANCE_PERIOD != iteration or (rare and n & (n - 1) != 0):
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
