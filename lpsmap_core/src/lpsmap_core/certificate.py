"""How far a solution can be from the true one: optimality conditions checked by the MAP oracles.

Write the problem with a copy ``x_l = mu_v / delta_v`` of every variable on each of its links. For
link duals lambda that sum to zero over the links of every variable, the maximum F* is at most the
sum of the factors' own maxima of

    phi_f(x, v) = <eta / delta + lambda, x> + <eta_N, v> - 1/2 ||x||^2.

At any point (z, v) of the factors' polytopes one call of the MAP oracle bounds each of them: with
``g_f = max_y <eta / delta + lambda - z, w_y - z> + <eta_N, n_y - v>``, phi_f is nowhere larger than
``phi_f(z, v) + g_f``, and at the copies of the true mu* it is smaller by ``1/2 ||z - C mu*||^2`` at
least. What is needed besides is a point whose copies agree; see docs/numerics.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.active_set import ActiveSets
from lpsmap_core.admm import solve_part
from lpsmap_core.state import EXACT, Options, PartState, WarmStart, sums

__all__ = ["Optimality", "check_optimality", "error_bounds"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


AMPLIFICATION = 1e3
"""How many times the rounding that is left of the optimality conditions a solution may be off. The
true factor depends on the angles between the constraints; see docs/numerics.md."""

EPSILON = float(np.finfo(np.float64).eps)

TIGHT = 1e-13
"""Tolerance of the solve that an error bound is taken from."""

FEWEST_ITERATIONS = 500
"""That solve may take as many iterations, or twice those of the solve before it."""


class Optimality(NamedTuple):
    """What is left of the optimality conditions in every component of a part."""

    violation: FloatArray
    """Sum of the g_f: by how much structures outside the solution's beat it."""
    excess: FloatArray
    """Sum of ``phi_f(z) - phi_f(C mu)`` at the means mu of the copies z."""
    disagreement: FloatArray
    """||z - C mu||"""
    size: FloatArray
    """Summed magnitudes of the terms of the g_f, at least 1: their rounding is a multiple of it."""


def check_optimality(state: PartState) -> Optimality:
    """Hold a part's last local solutions and duals against the oracles of its factors."""
    part, problem, z = state.part, state.problem, state.problem.iterate.z
    owner, n = part.component[part.link_variable], part.n_components
    a = state.slot_scores()
    forced = problem.iterate.eta[part.link_variable] <= -problem.huge
    violation, size = np.zeros(n), np.ones(n)
    for b, bucket in enumerate(part.buckets):
        links = state.links_of(b)
        gaps, sizes = _gaps(state, b, a[links], forced[links])
        violation += sums(bucket.component, np.maximum(gaps, 0.0), n)
        size += sums(bucket.component, sizes, n)
    means = (state.marginals() / part.root_degree)[part.link_variable]
    consistent = part.sign * means + part.shift
    difference = z - consistent
    slope = np.where(difference == 0.0, 0.0, a - 0.5 * (z + consistent))
    return Optimality(
        violation=violation,
        excess=sums(owner, slope * difference, n),
        disagreement=np.sqrt(sums(owner, difference**2, n)),
        size=size,
    )


def error_bounds(state: PartState, optimality: Optimality) -> FloatArray:
    """Return for every component a bound on ``||mu - mu*||``; inf where there is none.

    Components whose optimality conditions hold to rounding are within `AMPLIFICATION` times what is
    left of them. A single factor's solution lies in its polytope, so that ``||z - z*||^2`` is at
    most its violation. All others are solved on until their conditions hold to rounding; the
    distance to that point is added to its own bound.
    """
    part = state.part
    bound = _bounds_at_rounding(state, optimality)
    alone = part.direct & np.isinf(bound)
    bound[alone] = np.sqrt(optimality.violation[alone])
    again = np.isinf(bound) & ~state.problem.progress.infeasible
    if again.any():
        refined = _solve_on(state, again)
        exact = _bounds_at_rounding(refined, check_optimality(refined))
        moved = (refined.marginals() - state.marginals()) ** 2
        distance = np.sqrt(sums(part.component, moved, part.n_components))
        bound[again] = (exact + distance)[again]
    return bound


def _bounds_at_rounding(state: PartState, found: Optimality) -> FloatArray:
    """Return the bounds of components whose optimality conditions hold to rounding, else inf."""
    part = state.part
    rounding = state.exact() & (found.violation <= EXACT * found.size)
    left = found.disagreement + found.violation + EPSILON * found.size
    n_variables = np.bincount(part.component, minlength=part.n_components)
    other_scores = np.sqrt(n_variables) * state.problem.progress.change
    return np.where(rounding, AMPLIFICATION * left + other_scores, np.inf)


def _solve_on(state: PartState, chosen: BoolArray) -> PartState:
    """Return a part's solution to rounding in some components, from where the loop ended."""
    part, problem = state.part, state.problem
    iterate, progress = problem.iterate, problem.progress
    eta = np.where(iterate.eta <= -problem.huge, -np.inf, iterate.eta)
    eta_v = np.where(problem.extras.eta <= -problem.huge, -np.inf, problem.extras.eta)
    by_bucket = [eta_v[state.additionals_of(b)] for b in range(len(part.buckets))]
    most = max(FEWEST_ITERATIONS, 2 * int(progress.iterations[chosen].max()))
    warm = WarmStart(iterate.u, iterate.dual, progress.gamma, chosen)
    return solve_part(part, eta, by_bucket, ~chosen, Options(max_iter=most, tol=TIGHT), warm)


def _gaps(
    state: PartState, b: int, a: FloatArray, forced: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return g_f of the factors of a bucket, and the summed magnitudes of its terms."""
    part, bucket = state.part, state.part.buckets[b]
    delta, z = part.delta[state.links_of(b)], state.problem.iterate.z[state.links_of(b)]
    additionals = state.additionals_of(b)
    eta_v, v = state.problem.extras.eta[additionals], state.problem.extras.v[additionals]
    of_link = np.repeat(np.arange(bucket.n_factors), np.diff(bucket.offsets))
    of_additional = np.repeat(np.arange(bucket.n_factors), np.diff(bucket.additional_offsets))

    def total(of_links: FloatArray, of_additionals: FloatArray) -> FloatArray:
        n = bucket.n_factors
        return sums(of_link, of_links, n) + sums(of_additional, of_additionals, n)

    # Forced slots keep no more of their huge scores than it takes to decide: the rest is rounding.
    slope = a - z
    barred = eta_v <= -state.problem.huge
    decisive = 1.0 + total(
        np.where(forced, 0.0, np.abs(slope) / delta), np.where(barred, 0.0, np.abs(eta_v))
    )
    slope = np.where(forced, np.sign(slope) * decisive[of_link] * delta, slope)
    eta_v = np.where(barred, -decisive[of_additional], eta_v)
    w, n = _best_vertices(state, b, slope / delta, eta_v)
    w /= delta
    gaps = total(slope * (w - z), eta_v * (n - v))
    sizes = total(np.abs(slope) * (w + z), np.abs(eta_v) * (n + v))
    return gaps, sizes


def _best_vertices(
    state: PartState, b: int, scores: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return every factor's best structure, dense: its variables and its additionals."""
    bucket = state.part.buckets[b]
    sets = ActiveSets(bucket, state.part.delta[state.links_of(b)])
    sets.scores[:] = scores
    sets.solve_map(np.arange(bucket.n_factors), eta_v)
    start, entry, value, size = sets.candidates
    factor = np.repeat(np.arange(bucket.n_factors), size)
    first = np.cumsum(size) - size
    at = np.repeat(start - first, size) + np.arange(size.sum())
    entries, values = entry[at].astype(np.int64), value[at]
    arity = np.diff(bucket.offsets)[factor]
    of_variables = entries < arity
    w, n = np.zeros(bucket.n_links), np.zeros(bucket.n_additionals)
    w[bucket.offsets[factor[of_variables]] + entries[of_variables]] = values[of_variables]
    rest = ~of_variables
    n[bucket.additional_offsets[factor[rest]] + entries[rest] - arity[rest]] = values[rest]
    return w, n
