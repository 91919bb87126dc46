"""Bounds on the distance of a solution from the true one, from its optimality conditions.

Write the problem with a copy ``x_l = mu_v / delta_v`` of every variable on each of its links. For
link duals lambda that sum to zero over the links of every variable, the maximum F* is at most the
sum of the local maxima of

    phi_f(x, v) = <eta / delta + lambda, x> + <eta_N, v> - q/2 ||x||^2,

with q = 1, or 0 without the quadratic term.

At any point (z, v) of the factors' polytopes one call of the MAP oracle bounds each local maximum.
With ``g_f = max_y <eta / delta + lambda - q z, w_y - z> + <eta_N, n_y - v>``, phi_f is nowhere
larger than ``phi_f(z, v) + g_f``. At the copies of the true mu* it is smaller by at least ``q/2 ||z
- C mu*||^2``. The bound also needs a point whose copies agree; see docs/explanation/method.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.engine.admm import solve_part
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.state import BucketView, PartState
from lpsmap_core.engine.stopping import EXACT_RESIDUAL, INFEASIBLE
from lpsmap_core.face_codes import EPSILON
from lpsmap_core.layout.ragged import sums
from lpsmap_core.local.oracles import best_structures, with_finite_scores
from lpsmap_core.local.solvers import solve_apart
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.interrupts import interruptible

AMPLIFICATION = 1e3
"""Bound on the error of a solution relative to the residuals of its optimality conditions. The true
factor depends on the angles between the constraints; see docs/explanation/method.md."""

TIGHT = 1e-13
"""Tolerance of the refining solve that gives an error bound."""

MIN_REFINING_ITERATIONS = 500
"""Iteration limit of the refining solve, or twice the iterations of the solve before it if that is
more."""


class Optimality(NamedTuple):
    """Residuals of the optimality conditions in every component."""

    violation: FloatArray
    """Sum over the factors of the excess of their maxima over ``phi_f(z)``: exact, or bounded by
    g_f."""
    excess: FloatArray
    """Sum of ``phi_f(z) - phi_f(C mu)`` at the means mu of the copies z."""
    disagreement: FloatArray
    """||z - C mu||"""
    distance: FloatArray
    """Distance from z to the local solutions, for factors whose local problem is solved again."""
    size: FloatArray
    """Summed magnitudes of the terms of the g_f, at least 1; their rounding is relative to it."""


@interruptible
def check_optimality(state: PartState) -> Optimality:
    """Compute the residuals of the optimality conditions at the last local solutions and duals.

    The oracle gives a better structure if it is compiled or the solver has nothing else. Closed
    forms without a compiled oracle solve their local problems again, for scores without the step
    size.
    """
    part, z, quadratic = state.part, state.problem.iterate.z, state.problem.quadratic
    owner, n = part.component[part.link_variable], part.n_components
    a = state.slot_scores()
    forced = state.decided()[part.link_variable] != 0.0
    violation, size, squares = np.zeros(n), np.ones(n), np.zeros(n)
    v = state.additionals()
    for view in state.views:
        bucket, links = view.bucket, view.links
        has_oracle = bucket.type.map_kernel is not None or view.solver.lists_structures
        check = _ask_oracle if has_oracle or not quadratic else _project_again
        gaps, sizes, moves = check(state, view, a[links], v[view.additionals], forced[links])
        violation += sums(bucket.component, np.maximum(gaps, 0.0), n)
        size += sums(bucket.component, sizes, n)
        squares += sums(bucket.component, moves, n)
    means = (state.marginals() / part.root_degree)[part.link_variable]
    consistent = part.negate(means)
    difference = z - consistent
    slope = np.where(forced, 0.0, a) - 0.5 * quadratic * (z + consistent)
    return Optimality(
        violation=violation,
        excess=sums(owner, slope * difference, n),
        disagreement=np.sqrt(sums(owner, difference**2, n)),
        distance=np.sqrt(squares),
        size=size,
    )


@interruptible
def error_bounds(state: PartState, optimality: Optimality, threads: int) -> FloatArray:
    """Return a bound on ``||mu - mu*||`` for every component; inf without a bound.

    If the optimality conditions of a component hold to rounding, the bound is `AMPLIFICATION` times
    their residuals. The solution of a single factor lies in its polytope, so ``||z - z*||^2`` is at
    most its violation once it exists. All other components are refined until the conditions hold to
    rounding, and the distance to the refined point is added to its own bound. If scores are so
    large that rounding prevents this, half the squared distance is at most the gap, up to the
    disagreement of the copies. Without the quadratic term the solution need not be unique.
    """
    part = state.part
    if not state.problem.quadratic:
        return np.full(part.n_components, np.inf)
    bound = _bounds_at_rounding(state, optimality)
    alone = state.part.direct & np.isinf(bound) & (state.problem.progress.iterations > 0)
    bound[alone] = np.sqrt(optimality.violation[alone])
    again = np.isinf(bound) & (state.problem.progress.outcome != INFEASIBLE)
    if again.any():
        refined = _solve_on(state, again, threads)
        exact = _bounds_at_rounding(refined, check_optimality(refined))
        moved = (refined.marginals() - state.marginals()) ** 2
        distance = np.sqrt(sums(part.component, moved, part.n_components))
        bound[again] = (exact + distance)[again]
    # if the rounding of large scores exceeds the residuals: phi_f is strongly concave
    rounded = np.isinf(bound) & state.exact()
    gap = np.maximum(optimality.violation, 0.0) + np.maximum(optimality.excess, 0.0)
    rough = np.sqrt(2.0 * gap) + AMPLIFICATION * (optimality.disagreement + optimality.distance)
    bound[rounded] = rough[rounded]
    return bound


def _bounds_at_rounding(state: PartState, optimality: Optimality) -> FloatArray:
    """Return the bounds of components whose conditions hold to rounding; inf elsewhere."""
    part = state.part
    violation, _, disagreement, distance, size = optimality
    small = np.maximum(violation, distance) <= EXACT_RESIDUAL * size
    left = disagreement + distance + violation + EPSILON * size
    n_variables = np.bincount(part.component, minlength=part.n_components)
    other_scores = np.sqrt(n_variables) * state.problem.progress.dual_residual
    return np.where(state.exact() & small, AMPLIFICATION * left + other_scores, np.inf)


def _solve_on(state: PartState, chosen: BoolArray, threads: int) -> PartState:
    """Refine some components to rounding, starting at the end of the loop."""
    part, problem = state.part, state.problem
    iterate, progress = problem.iterate, problem.progress
    most = max(MIN_REFINING_ITERATIONS, 2 * int(progress.iterations[chosen].max()))
    warm = WarmStart(iterate.u.copy(), iterate.duals.copy(), progress.step_size, chosen)
    options = Options(max_iter=most, tol=TIGHT, threads=threads)
    return solve_part(part, *state.given_scores(), ~chosen, options, warm)


def _ask_oracle(
    state: PartState, view: BucketView, a: FloatArray, v: FloatArray, forced: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return g_f of a bucket's factors by their oracle, the magnitudes of its terms, and zeros."""
    bucket, z, extras = view.bucket, view.z, state.problem.extras
    delta, eta_v = state.part.root_degree[bucket.variable], extras.eta[view.additionals]
    slope = np.where(forced, np.copysign(np.inf, a), a - state.problem.quadratic * z)
    forbidden = extras.forbidden[view.additionals] != 0
    slots, eta_v = with_finite_scores(bucket, slope / delta, eta_v, forbidden, 1.0)
    w, n = best_structures(bucket, slots, eta_v)
    slope = slots * delta
    w /= delta
    gaps = bucket.sums(slope * (w - z), eta_v * (n - v))
    sizes = bucket.sums(np.abs(slope) * (w + z), np.abs(eta_v) * (n + v))
    return gaps, sizes, np.zeros(bucket.n_factors)


def _project_again(
    state: PartState, view: BucketView, a: FloatArray, v: FloatArray, forced: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the excess of the local maxima over phi_f(z), magnitudes and squared distances."""
    bucket, z, extras = view.bucket, view.z, state.problem.extras
    delta, eta_v = state.part.root_degree[bucket.variable], extras.eta[view.additionals]
    forbidden = extras.forbidden[view.additionals] if state.forbids else None
    _, best, best_v = solve_apart(bucket, delta, a, eta_v, forbidden)
    move = best - z
    mean_slope = np.where(move != 0.0, a - 0.5 * (best + z), 0.0)  # infinite in forced slots
    gains = bucket.sums(mean_slope * move, eta_v * (best_v - v))
    slope = np.where(forced, 0.0, np.abs(a - z))
    sizes = bucket.sums(slope * (best + z), np.abs(eta_v) * (best_v + v))
    return gains, sizes, bucket.sums(move**2, np.zeros_like(v))
