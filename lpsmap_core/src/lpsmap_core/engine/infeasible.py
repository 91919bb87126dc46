"""Proof that the constraints of a component contradict each other.

Let r be numbers on the links that sum to zero over the links of every variable. On consistent
copies of any marginals, <r, C mu> = 0. If the maxima of <r, z> over the factors' polytopes sum to
less than zero, no point of the polytopes is consistent. The gap between the variables' means and
their copies is one choice of r, and in a contradictory component it converges to a proof. The
polytopes exclude entries that a score of ``-inf`` forbids.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.soundness import check_local_solutions
from lpsmap_core.engine.state import PartState, sums
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.layout.ragged import ranges
from lpsmap_core.local.local_solver import UNTIL_SOLVED
from lpsmap_core.local.oracles import best_structures, with_finite_scores
from lpsmap_core.local.solvers import local_solver
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.interrupts import out_of_time

FIRST_TEST = 60
"""The first iteration with a test; further tests follow at every doubling and at the limit."""

SUSPECT = 1e-5
"""Primal residual above which a component is tested."""

SHARPNESS = 1e6
"""Scale of the scores at which a projection stands in for the largest <r, z>."""

PENALTY = 1e3 * SHARPNESS
"""Penalty on the scores of forbidden additionals."""

PROOF_ROUNDING = 1e-12
"""Rounding of a sum over r relative to its magnitudes; a proof has to exceed it."""

BYSTANDER = 1e-2
"""A factor whose numbers of r are smaller than this, relative to the largest, is left out of a
proof that holds without it."""

VIOLATION = 1e-4
"""A larger marginal of a forbidden variable shows that the constraints need it."""


class InfeasibilityTest:
    """Periodic test of the running components."""

    def __init__(self, state: PartState) -> None:
        self.state = state
        self.next_iteration = FIRST_TEST

    def find(self, running: IntArray) -> BoolArray:
        """Mark running components that are proven infeasible; return which of them are."""
        self.next_iteration *= 2
        progress = self.state.problem.progress
        suspect = np.zeros(self.state.part.n_components, dtype=np.bool_)
        suspect[running] = ((progress.primal_residual > SUSPECT) | self._violate_masks())[running]
        if not suspect.any():
            return suspect[running]
        check_local_solutions(self.state)  # invalid solutions prove nothing
        gap = self._gap()
        found = suspect & (self._support(suspect, gap)[0] < 0.0)
        if out_of_time():  # interrupted projections give no valid bounds
            found[:] = False
        if found.any():
            progress.infeasible[found] = True
            self._record_proof(found, gap)
        return found[running]

    def _record_proof(self, found: BoolArray, gap: FloatArray) -> None:
        """Record the factors of the proofs, leaving out those that the proofs do not need."""
        part, spans = self.state.part, self.state.problem.spans
        factor, n_factors = factor_of_links(self.state), len(spans.component)
        if self.state.forbids:
            bound, needs = self._support(found, np.zeros(part.n_links))
            single = found & (bound < 0.0)  # where a single factor needs a forbidden entry
            _record(self.state, single[spans.component] & needs)
            found = found & ~single
        largest = np.zeros(n_factors)
        np.maximum.at(largest, factor, np.abs(gap))
        involved = largest > BYSTANDER
        core = np.where(involved[factor], gap, 0.0)
        degree = np.bincount(part.link_variable, involved[factor], part.n_variables)
        excess = sums(part.link_variable, core, part.n_variables) / np.maximum(degree, 1.0)
        core -= np.where(involved[factor], excess[part.link_variable], 0.0)
        proven = found & (self._support(found, core)[0] < 0.0)
        named = np.where(proven[spans.component], involved, largest > 0.0)
        _record(self.state, named & found[spans.component])

    def _violate_masks(self) -> BoolArray:
        """Return for each component whether one of its factors holds a forbidden entry."""
        state = self.state
        if not state.forbids:
            return np.zeros(state.part.n_components, dtype=bool)
        problem = state.problem
        return _components_of(state, violating_factors(state, problem.iterate.z, problem.extras.v))

    def _gap(self) -> FloatArray:
        """Return the gaps between means and copies, scaled to at most 1 in every component."""
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
        """Return upper bounds on the largest <r, z> of each suspect component.

        Also returns for each factor whether all its structures hold a forbidden entry. An oracle
        gives the exact maximum. For other solvers, with z_t the projection of t r onto the allowed
        points, <r, z> <= <r, z_t> + ||z||^2 / (2 t) for every allowed z.
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
            extra = problem.spans.first_additional[b] + ranges(bucket.additional_offsets, rows)
            of_bucket = bucket.select(rows), links, extra
            if state.solvers[b].lists_structures:
                z[links], v[extra] = self._best(*of_bucket, scores, scores_v)
            else:
                z[links], v[extra], unsolved = self._project(*of_bucket, scores, scores_v)
                unsure[unsolved], slack[links] = True, 0.5 / SHARPNESS / part.delta[links] ** 2
        copies = part.sign * z + part.shift
        needs = violating_factors(state, z, v)
        bound = sums(owner, gap * copies + slack + PROOF_ROUNDING * np.abs(gap), part.n_components)
        bound[unsure] = np.inf
        # oracles avoid forbidden entries: a structure that holds one shows that all do
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

        An active set would have to find its face at nearly infinite scores, where rounding makes
        structures join and leave without end.
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
        """Return the local solutions of some factors, and the components of unsolved ones.

        A separate solver keeps the faces of the loop unchanged.
        """
        state = self.state
        barred = state.problem.extras.barred[extra] if state.forbids else None
        solver = local_solver(factors, state.part.delta[links], barred=barred)
        found, found_v = np.empty(len(links)), np.empty(len(extra))
        everything = np.arange(factors.n_factors)
        solver.solve(everything, scores[links], scores_v[extra], found, found_v, UNTIL_SOLVED)
        return found, found_v, factors.component[solver.unsolved()]


def find_violations(state: PartState) -> None:
    """Mark components that need entries that ``-inf`` forbids, and record the factors that do."""
    if not state.forbids:
        return
    problem, progress = state.problem, state.problem.progress
    held_by = violating_factors(state, problem.iterate.z, problem.extras.v)
    # a factor without allowed structures can run out of iterations
    finished = progress.converged | (problem.direct & progress.unsolved)
    found = _components_of(state, held_by) & finished
    progress.infeasible[found] = True
    _record(state, held_by & found[problem.spans.component])


def violating_factors(state: PartState, z: FloatArray, v: FloatArray) -> BoolArray:
    """Return for each factor whether its local solution violates a score of ``-inf`` or ``inf``."""
    part, problem = state.part, state.problem
    n_factors = len(problem.spans.component)
    held = part.delta * (part.sign * z + part.shift)
    decided = state.decided[part.link_variable]
    held = np.where(decided > 0.0, 1.0 - held, held)
    held[decided == 0.0] = 0.0
    by_factor = sums(factor_of_links(state), held, n_factors)
    barred = np.flatnonzero(problem.extras.barred)
    owner = np.searchsorted(problem.spans.additional_offsets, barred, side="right") - 1
    by_factor += sums(owner, v[barred], n_factors)
    return by_factor > VIOLATION


def _components_of(state: PartState, factors: BoolArray) -> BoolArray:
    """Return the components of some factors."""
    chosen = np.zeros(state.part.n_components, dtype=bool)
    chosen[state.problem.spans.component[factors]] = True
    return chosen


def factor_of_links(state: PartState) -> IntArray:
    """Return the factor of each link, numbered over all buckets."""
    arity = [np.diff(bucket.offsets) for bucket in state.part.buckets]
    return np.repeat(np.arange(sum(map(len, arity))), np.concatenate(arity))


def _record(state: PartState, named: BoolArray) -> None:
    """Record contradicting factors by their components."""
    spans = state.problem.spans
    for f in np.flatnonzero(named):
        b = int(np.searchsorted(spans.first_factor, f, side="right")) - 1
        which = state.contradicting.setdefault(int(spans.component[f]), [])
        which.append((b, int(f - spans.first_factor[b])))
