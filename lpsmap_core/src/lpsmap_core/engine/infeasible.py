"""Proof that the constraints of a component contradict each other.

Let r be numbers on the links that sum to zero over the links of every variable. On consistent
copies of any marginals <r, C mu> = 0. If the largest <r, z> over each factor's own polytope sums to
less than zero, no point of the polytopes is consistent. The gap between the variables' means and
their copies is such an r, and in a contradictory component it converges to one that proves it.
What a score of ``-inf`` forbids is no part of the polytopes.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.soundness import refuse_unsound_solutions
from lpsmap_core.engine.state import PartState, sums
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.layout.ragged import ranges
from lpsmap_core.local.active.limits import AS_NEEDED
from lpsmap_core.local.oracles import best_structures, with_finite_scores
from lpsmap_core.local.solvers import local_solver
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.interrupts import out_of_time

__all__ = ["FIRST_TEST", "InfeasibilityTest", "factor_of_links", "find_violations", "holders"]

FIRST_TEST = 60
"""The first iteration at which to test; then at every doubling, and at last at the limit."""

SUSPECT = 1e-5
"""Primal residual below which a component counts as on its way."""

SHARPNESS = 1e6
"""Scale of the scores at which a projection stands in for the largest <r, z>."""

PENALTY = 1e3 * SHARPNESS
"""Taken off the scores of additionals that are forbidden."""

ROUNDING = 1e-12
"""Of a sum of r, in units of its magnitudes: by less than that nothing is proven."""

BYSTANDER = 1e-2
"""Factors where r is smaller than this, relative to its largest number, are left out of a proof if
it holds without them."""

VIOLATION = 1e-4
"""A larger marginal of a forbidden variable shows that the constraints cannot do without it."""


class InfeasibilityTest:
    """Tests the running components from time to time."""

    def __init__(self, state: PartState) -> None:
        self.state = state
        self.next_iteration = FIRST_TEST

    def find(self, running: IntArray) -> BoolArray:
        """Mark running components that are proven infeasible; return for each whether it is."""
        self.next_iteration *= 2
        progress = self.state.problem.progress
        suspect = np.zeros(self.state.part.n_components, dtype=np.bool_)
        suspect[running] = ((progress.primal_residual > SUSPECT) | self._hold_forbidden())[running]
        if not suspect.any():
            return suspect[running]
        refuse_unsound_solutions(self.state)  # nothing is proven by numbers that are none
        gap = self._gap()
        found = suspect & (self._support(suspect, gap)[0] < 0.0)
        if out_of_time():  # the supports are those of projections that were cut short
            found[:] = False
        if found.any():
            progress.infeasible[found] = True
            self._name(found, gap)
        return found[running]

    def _name(self, found: BoolArray, gap: FloatArray) -> None:
        """Note the factors of the proofs, without those that the proofs can do without."""
        part, blocks = self.state.part, self.state.problem.blocks
        factor, n_factors = factor_of_links(self.state), len(blocks.component)
        if self.state.forbids:
            bound, needs = self._support(found, np.zeros(part.n_links))
            single = found & (bound < 0.0)  # where a factor alone needs what is forbidden
            _note(self.state, single[blocks.component] & needs)
            found = found & ~single
        largest = np.zeros(n_factors)
        np.maximum.at(largest, factor, np.abs(gap))
        involved = largest > BYSTANDER
        core = np.where(involved[factor], gap, 0.0)
        degree = np.bincount(part.link_variable, involved[factor], part.n_variables)
        excess = sums(part.link_variable, core, part.n_variables) / np.maximum(degree, 1.0)
        core -= np.where(involved[factor], excess[part.link_variable], 0.0)
        proven = found & (self._support(found, core)[0] < 0.0)
        named = np.where(proven[blocks.component], involved, largest > 0.0)
        _note(self.state, named & found[blocks.component])

    def _hold_forbidden(self) -> BoolArray:
        """Return for each component whether a factor of it holds what is forbidden."""
        state = self.state
        if not state.forbids:
            return np.zeros(state.part.n_components, dtype=bool)
        problem = state.problem
        return _components_of(state, holders(state, problem.iterate.z, problem.extras.v))

    def _gap(self) -> FloatArray:
        """Return the gaps between means and copies, in every component at most 1."""
        state, part = self.state, self.state.part
        owner = part.component[part.link_variable]
        copies = part.sign * state.problem.iterate.z + part.shift
        degree = np.diff(part.variable_offsets)
        means = sums(part.link_variable, copies, part.n_variables) / degree
        gap = means[part.link_variable] - copies
        size = np.zeros(part.n_components)
        np.maximum.at(size, owner, np.abs(gap))
        return gap / np.where(size > 0.0, size, 1.0)[owner]

    def _support(self, suspect: BoolArray, gap: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return for each suspect component an upper bound of its largest <r, z>.

        And for each factor whether all its structures hold something that is forbidden. Oracles
        answer with the largest itself. Elsewhere, with z_t the projection of t r onto the others,
        <r, z> <= <r, z_t> + ||z||^2 / (2 t) for every z.
        """
        state, part, problem = self.state, self.state.part, self.state.problem
        owner = part.component[part.link_variable]
        decided = state.decided[part.link_variable]
        scores = part.sign * np.where(decided == 0.0, SHARPNESS * gap, decided)
        scores_v = np.where(problem.extras.barred, -PENALTY, 0.0)
        z, v, slack = np.zeros(part.n_links), np.zeros(len(scores_v)), np.zeros(part.n_links)
        unsure = np.zeros(part.n_components, dtype=bool)
        for b, bucket in enumerate(part.buckets):
            rows = np.flatnonzero(suspect[bucket.component])
            if not rows.size:
                continue
            links = part.first_link[b] + ranges(bucket.offsets, rows)
            extra = problem.blocks.first_additional[b] + ranges(bucket.additional_offsets, rows)
            of_bucket = bucket.select(rows), links, extra
            if state.solvers[b].lists_structures:
                z[links], v[extra] = self._best(*of_bucket, scores, scores_v)
            else:
                z[links], v[extra], unsolved = self._project(*of_bucket, scores, scores_v)
                unsure[unsolved], slack[links] = True, 0.5 / SHARPNESS / part.delta[links] ** 2
        copies = part.sign * z + part.shift
        needs = holders(state, z, v)
        bound = sums(owner, gap * copies + slack + ROUNDING * np.abs(gap), part.n_components)
        bound[unsure] = np.inf
        # any one structure that holds it says so: oracles prefer those that do not
        bound[_components_of(state, needs)] = -np.inf
        return bound, needs

    def _best(
        self,
        factors: Bucket,
        links: IntArray,
        extra: IntArray,
        scores: FloatArray,
        scores_v: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the best structures of some factors, as local solutions.

        An active set would have to find its face at scores that are as good as infinite, where
        rounding keeps structures coming and going.
        """
        delta, barred = self.state.part.delta[links], self.state.problem.extras.barred[extra] != 0
        finite = with_finite_scores(factors, scores[links] / delta, scores_v[extra], barred)
        w, v = best_structures(factors, *finite)
        return w / delta, v

    def _project(
        self,
        factors: Bucket,
        links: IntArray,
        extra: IntArray,
        scores: FloatArray,
        scores_v: FloatArray,
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return the local solutions of some factors, and components where one is not found.

        Their solver is their own: the loop goes on with the faces that it has.
        """
        state = self.state
        barred = state.problem.extras.barred[extra] if state.forbids else None
        solver = local_solver(factors, state.part.delta[links], barred=barred)
        found, found_v = np.empty(len(links)), np.empty(len(extra))
        everything = np.arange(factors.n_factors)
        solver.solve(everything, scores[links], scores_v[extra], found, found_v, AS_NEEDED)
        solver.raise_error()
        return found, found_v, factors.component[solver.unsolved()]


def find_violations(state: PartState) -> None:
    """Mark components that need what a score of ``-inf`` forbids, and note the factors that do."""
    if not state.forbids:
        return
    problem, progress = state.problem, state.problem.progress
    held_by = holders(state, problem.iterate.z, problem.extras.v)
    # a factor that has no allowed structures can run out of iterations over them
    finished = progress.converged | (problem.direct & progress.unsolved)
    found = _components_of(state, held_by) & finished
    progress.infeasible[found] = True
    _note(state, held_by & found[problem.blocks.component])


def holders(state: PartState, z: FloatArray, v: FloatArray) -> BoolArray:
    """Return for each factor whether its local solution is against what is decided."""
    part, problem = state.part, state.problem
    n_factors = len(problem.blocks.component)
    held = part.delta * (part.sign * z + part.shift)
    decided = state.decided[part.link_variable]
    held = np.where(decided > 0.0, 1.0 - held, held)
    held[decided == 0.0] = 0.0
    of_additional = np.repeat(np.arange(n_factors), np.diff(problem.blocks.additional_offsets))
    by_factor = sums(factor_of_links(state), held, n_factors)
    by_factor += sums(of_additional, np.where(problem.extras.barred, v, 0.0), n_factors)
    return by_factor > VIOLATION


def _components_of(state: PartState, factors: BoolArray) -> BoolArray:
    """Return the components of some factors."""
    chosen = np.zeros(state.part.n_components, dtype=bool)
    chosen[state.problem.blocks.component[factors]] = True
    return chosen


def factor_of_links(state: PartState) -> IntArray:
    """Return for each link its factor, counted over all buckets."""
    arity = [np.diff(bucket.offsets) for bucket in state.part.buckets]
    return np.repeat(np.arange(sum(map(len, arity))), np.concatenate(arity))


def _note(state: PartState, named: BoolArray) -> None:
    """Note which factors contradict, by their components."""
    blocks = state.problem.blocks
    for f in np.flatnonzero(named):
        b = int(np.searchsorted(blocks.first_factor, f, side="right")) - 1
        which = state.contradicting.setdefault(int(blocks.component[f]), [])
        which.append((b, int(f - blocks.first_factor[b])))
