"""The scores of a part as the loop takes them, and what follows from their size, in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.problem import LoopProblem, problem_at
from lpsmap_core.engine.step_size import first_step_size
from lpsmap_core.kernels.arrays import BoolArray, FloatArray
from lpsmap_core.kernels.compile import leaf
from lpsmap_core.local.forced import FORBIDDEN

__all__ = ["EVERYWHERE", "RESIDUAL_ROUNDING", "set_scores"]

EVERYWHERE = np.empty(0, dtype=np.bool_)
"""Chooses all components."""

RESIDUAL_ROUNDING = 1e-14
"""Dual residuals below this multiple of a component's largest score are rounding."""


def set_scores(
    handle: Any, chosen: BoolArray, eta: FloatArray, eta_v: FloatArray, options: Options
) -> float:
    """Write the scores of chosen components, and set their progress back to the beginning.

    Means, duals and faces stay as they are, for the loop to go on from.

    Parameters
    ----------
    handle
        Of a `LoopProblem`.
    chosen
        (n_components,) the components, or `EVERYWHERE`.
    eta, eta_v
        Scores of the part's variables and additionals. Those of ``-inf`` are set apart: the
        variables' in ``iterate.score``, the additionals' in ``extras.barred``. So are scores of
        ``inf``, of variables that have to be on.
    options
        Settings, of which the first step size may be one.

    Returns
    -------
    float
        The largest magnitude, at least 1; infinite if something is set apart.
    """
    fixed = np.nan if options.step_size is None else options.step_size
    largest: float = _set_scores(handle, chosen, eta, eta_v, fixed)
    return largest


@leaf
def _set_scores(
    handle: Any, chosen: BoolArray, eta: FloatArray, eta_v: FloatArray, step_size: float
) -> float:
    """Do what `set_scores` does; a step size that is not a number is to be chosen."""
    problem = problem_at(handle)
    progress, first = problem.progress, problem.blocks.first_variable
    largest = 1.0
    for c in range(len(first) - 1):
        if len(chosen) > 0 and not chosen[c]:
            continue
        scores, step = eta[first[c] : first[c + 1]], step_size
        most, finite = _set_variables(first[c], scores, problem)
        if problem.direct[c]:
            step = 0.0
        elif np.isnan(step):
            step = first_step_size(scores, problem.quadratic)
        progress.step_size[c] = progress.first_step_size[c] = step
        progress.rounding[c] = RESIDUAL_ROUNDING * finite
        progress.primal_residual[c] = progress.dual_residual[c] = np.inf
        progress.iterations[c], progress.stale[c] = 0, True
        progress.converged[c] = progress.infeasible[c] = False
        progress.unsolved[c] = progress.warm[c] = False
        largest = max(largest, most)
    return largest if len(eta_v) == 0 else max(largest, _set_additionals(chosen, eta_v, problem))


@leaf
def _set_variables(first: int, scores: FloatArray, problem: LoopProblem) -> tuple[float, float]:
    """Write the scores of a component's variables.

    Returns the largest magnitude, and that of the finite ones, both at least 1.
    """
    root_degree, iterate = problem.links.root_degree, problem.iterate
    most = finite = 1.0
    for i in range(len(scores)):
        score, v = scores[i], first + i
        iterate.score[v] = score / root_degree[v]
        most = max(most, abs(score))
        if abs(score) == np.inf:
            score = 0.0
        iterate.eta[v] = score
        finite = max(finite, abs(score))
    return most, finite


@leaf
def _set_additionals(chosen: BoolArray, eta_v: FloatArray, problem: LoopProblem) -> float:
    """Write the scores of additionals; return the largest magnitude.

    Forbidden ones have scores so low that no other scores make up for them.
    """
    blocks, extras, rounding = problem.blocks, problem.extras, problem.progress.rounding
    offsets, largest = blocks.additional_offsets, 1.0
    for f in range(len(blocks.component)):
        c = blocks.component[f]
        if len(chosen) == 0 or chosen[c]:
            for i in range(offsets[f], offsets[f + 1]):
                largest = max(largest, abs(eta_v[i]))
                if eta_v[i] > -np.inf:
                    rounding[c] = max(rounding[c], RESIDUAL_ROUNDING * abs(eta_v[i]))
    for f in range(len(blocks.component)):
        c = blocks.component[f]
        if len(chosen) == 0 or chosen[c]:
            for i in range(offsets[f], offsets[f + 1]):
                extras.barred[i] = eta_v[i] == -np.inf
                score = -FORBIDDEN * rounding[c] / RESIDUAL_ROUNDING
                extras.eta[i] = extras.scaled[i] = score if extras.barred[i] else eta_v[i]
    return largest
