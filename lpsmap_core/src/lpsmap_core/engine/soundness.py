"""Validation of local solutions from solvers without an oracle, at the end of a solve.

No other test enforces that the marginals of a closed form lie in [0, 1]. Without it, a faulty
closed form would give a wrong result that counts as solved, and a NaN would spread until the
iterations run out.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from lpsmap_core.engine.magnitudes import MAX_PRECISE
from lpsmap_core.engine.problem import problem_at
from lpsmap_core.engine.state import BucketView, PartState
from lpsmap_core.engine.stopping import CONVERGED, INFEASIBLE
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.local.solvers import solve_apart
from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.compile import leaf

MARGINAL_TOLERANCE = 1e-6
"""Distance outside [0, 1] up to which a marginal is explained by rounding."""


def check_local_solutions(state: PartState) -> None:
    """Validate the latest local solutions of solvers without an oracle.

    It is an error if a marginal is not finite, or outside [0, 1] in a component that has converged.
    """
    for b, view in enumerate(state.views):
        if not view.solver.lists_structures:
            f = first_invalid_solution(state.handle, b, view.bucket.offsets, view.solver.delta)
            if f >= 0 and (
                state.problem.progress.outcome[view.bucket.component[f]] == CONVERGED
                or _fails_alone(state, view, f)
            ):
                _refuse(state, view, f)


def _fails_alone(state: PartState, view: BucketView, f: int) -> bool:
    """Return whether a solver also fails for the factor's own scores.

    Otherwise its inputs in the loop may have been invalid.
    """
    (slots, extra), factor = _places(view.bucket, f), view.bucket.select(np.array([f]))
    eta = np.where(factor.negated, -1.0, 1.0) * state.problem.iterate.eta[factor.variable]
    eta_v = state.problem.extras.eta[view.additionals][extra].copy()
    _, z, _ = solve_apart(factor, view.solver.delta[slots], eta, eta_v, None)
    return not np.isfinite(z).all()


def _places(bucket: Bucket, f: int) -> tuple[slice, slice]:
    """Return the slices of a factor's slots and additionals in its bucket."""
    slots, extra = bucket.offsets[f : f + 2], bucket.additional_offsets[f : f + 2]
    return slice(*slots.tolist()), slice(*extra.tolist())


def _refuse(state: PartState, view: BucketView, f: int) -> NoReturn:
    bucket, solver, (slots, extra) = view.bucket, view.solver, _places(view.bucket, f)
    name, means = bucket.type.__name__, solver.delta[slots] * view.z[slots]
    counts = state.additionals()[view.additionals][extra]
    also = f" and additionals {counts.tolist()!r:.60}" if len(counts) else ""
    raise ValueError(
        f"{name}.{solver.function} wrote the marginals delta * z = {means.tolist()!r:.120}{also} "
        f"for factor {bucket.row[f]} of {bucket.declarations[bucket.declaration[f]]!r}; expected "
        f"finite numbers, those of variables within [0, 1]. `lpsmap check {name}` shows more."
    )


@leaf
def first_invalid_solution(handle: Any, b: int, offsets: IntArray, delta: FloatArray) -> int:
    """Return the first factor of bucket `b` with an invalid local solution; -1 without one.

    Skips infeasible components, which have no solution, and components whose scores are so large
    that sums can overflow.
    """
    problem = problem_at(handle)
    spans, progress, z, v = problem.spans, problem.progress, problem.iterate.z, problem.extras.v
    link, factor = spans.first_link[b], spans.first_factor[b]
    for f in range(len(offsets) - 1):
        c = spans.component[factor + f]
        large = progress.largest_score[c] > MAX_PRECISE
        if progress.iterations[c] == 0 or progress.outcome[c] == INFEASIBLE or large:
            continue
        converged = progress.outcome[c] == CONVERGED
        n_wrong, most = 0, MARGINAL_TOLERANCE + 0.5 if converged else np.inf
        for i in range(offsets[f], offsets[f + 1]):
            distance = abs(delta[i] * z[link + i] - 0.5)
            n_wrong += not (distance <= most and distance < np.inf)
        if converged:  # otherwise they may not be written yet
            for i in range(
                spans.additional_offsets[factor + f], spans.additional_offsets[factor + f + 1]
            ):
                n_wrong += not abs(v[i]) < np.inf
        if n_wrong > 0:
            return f
    return -1
