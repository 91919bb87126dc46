"""The scores of a part in the form that the loop takes, and the settings that they determine."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.problem import LoopProblem, problem_at
from lpsmap_core.engine.step_size import first_step_size
from lpsmap_core.local.finite_scores import FORBIDDEN_MULTIPLE
from lpsmap_core.model.unused import MAGNITUDE, largest_magnitude
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray
from lpsmap_jit.compile import leaf

__all__ = ["EVERYWHERE", "RESIDUAL_ROUNDING", "set_scores"]

EVERYWHERE = np.empty(0, dtype=np.bool_)
"""Selects all components."""

RESIDUAL_ROUNDING = 1e-14
"""Dual residuals below this multiple of a component's largest score are rounding."""


def set_scores(
    handle: Any, chosen: BoolArray, eta: FloatArray, eta_v: FloatArray, options: Options
) -> float:
    """Write the scores of some components, and reset their progress.

    Means, duals and faces are kept as the starting point of the loop.

    Parameters
    ----------
    handle
        Of a `LoopProblem`.
    chosen
        (n_components,) the components, or `EVERYWHERE`.
    eta, eta_v
        Scores of the part's variables and additionals. Infinite scores are stored separately:
        ``-inf`` and ``inf`` of variables, which are forced on then, in ``iterate.score``, and
        ``-inf`` of additionals in ``extras.barred``.
    options
        Settings; they may include the first step size.

    Returns
    -------
    float
        The largest magnitude, at least 1; infinite if any score is.
    """
    fixed = np.nan if options.step_size is None else options.step_size
    largest: float = _set_scores(handle, chosen, eta, eta_v, fixed)
    return largest


@leaf
def _set_scores(
    handle: Any, chosen: BoolArray, eta: FloatArray, eta_v: FloatArray, step_size: float
) -> float:
    """Compute `set_scores`; a `step_size` of NaN means the default."""
    problem = problem_at(handle)
    progress, first = problem.progress, problem.spans.first_variable
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

    Returns the largest magnitude and the largest finite magnitude, both at least 1.
    """
    last = first + len(scores)
    score, eta = problem.iterate.score[first:last], problem.iterate.eta[first:last]
    root_degree = problem.links.root_degree[first:last]
    for i in range(np.uint64(len(scores))):
        score[i] = scores[i] / root_degree[i]
        eta[i] = 0.0 if abs(scores[i]) == np.inf else scores[i]
    most = largest_magnitude(scores)
    finite = largest_magnitude(eta) if most == np.inf else most
    return max(1.0, most), max(1.0, finite)


@leaf
def _set_additionals(chosen: BoolArray, eta_v: FloatArray, problem: LoopProblem) -> float:
    """Write the scores of additionals; return the largest magnitude.

    Forbidden additionals get scores so low that no other scores outweigh them.
    """
    spans, extras, rounding = problem.spans, problem.extras, problem.progress.rounding
    offsets, largest = spans.additional_offsets, 1.0
    for f in range(len(spans.component)):
        c, lo, hi = spans.component[f], offsets[f], offsets[f + 1]
        if len(chosen) == 0 or chosen[c]:
            most = _copy(eta_v[lo:hi], extras.eta[lo:hi])
            extras.barred[lo:hi] = 0
            largest = max(largest, most)
            if most == np.inf:
                most = _largest_finite(eta_v[lo:hi])
            rounding[c] = max(rounding[c], RESIDUAL_ROUNDING * most)
    for f in range(len(spans.component)):
        c, lo, hi = spans.component[f], offsets[f], offsets[f + 1]
        if len(chosen) == 0 or chosen[c]:
            if largest == np.inf:
                forbidden = -FORBIDDEN_MULTIPLE * rounding[c] / RESIDUAL_ROUNDING
                _forbid(extras.eta[lo:hi], forbidden, extras.barred[lo:hi])
            _copy(extras.eta[lo:hi], extras.scaled[lo:hi])
    return largest


@leaf
def _largest_finite(scores: FloatArray) -> float:
    """Return the largest finite magnitude, 0 without finite numbers."""
    most = 0.0
    for score in scores:
        if abs(score) < np.inf:
            most = max(most, abs(score))
    return most


@leaf
def _forbid(scores: FloatArray, forbidden: float, barred: ByteArray) -> None:
    """Replace scores of ``-inf`` by `forbidden`, and mark them in `barred`."""
    for i in range(np.uint64(len(scores))):
        barred[i] = scores[i] == -np.inf
        scores[i] = forbidden if scores[i] == -np.inf else scores[i]


@leaf
def _copy(source: FloatArray, target: FloatArray) -> float:
    """Copy some numbers; return their `largest_magnitude`."""
    bits, copies, most = source.view(np.int64), target.view(np.int64), np.int64(0)
    for i in range(np.uint64(len(source))):
        copies[i] = bits[i]
        most = max(most, bits[i] & MAGNITUDE)
    found = np.int64(most)
    magnitude: float = found.view(np.float64)
    return magnitude
