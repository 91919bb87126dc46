"""The step size of a component: its first value, and its balancing by the residuals."""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.layout.layout import Part
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.compile import leaf

FIRST_STEP_SIZE, SHARE_OF_SCORE = 5.0, 0.3
"""First step size for scores near zero, and the share of the largest score with which it grows."""

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
    """Return the first step sizes: they follow the largest scores, like the duals.

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
        scores, largest = np.concatenate([eta, eta_v]), np.zeros(part.n_components)
        magnitude = np.where(np.isfinite(scores), np.abs(scores), 0.0)
        np.maximum.at(largest, part.component_of_numbers, magnitude)
        _first_step_sizes(largest, options.quadratic, step_size)
    step_size[direct] = 0.0
    return step_size


@leaf
def _first_step_sizes(largest: FloatArray, quadratic: float, out: FloatArray) -> None:
    for c in range(len(out)):
        out[c] = first_step_size(largest[c], quadratic)


@leaf
def first_step_size(largest_score: float, quadratic: float) -> float:
    """Return ``5 sqrt(1 + (0.3 s)^2)`` for the largest finite score s of a component.

    Without the quadratic term it is in proportion to s. If all scores are zero, any is right.
    """
    if quadratic > 0.0:
        step_size: float = FIRST_STEP_SIZE * np.hypot(1.0, SHARE_OF_SCORE * max(largest_score, 1.0))
        return step_size
    return FIRST_LINEAR * (largest_score if largest_score > 0.0 else 1.0)


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
