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
from lpsmap_core.engine.state import PartState
from lpsmap_core.engine.stopping import CONVERGED, INFEASIBLE
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.layout.ragged import flags, ranges, sums
from lpsmap_core.local.oracles import best_feasible
from lpsmap_core.local.solvers import solve_apart
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, IntArray
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
        gaps = self._gaps()
        proven = suspect & (self._support(suspect, gaps)[0] < 0.0)
        if out_of_time():  # interrupted projections give no valid bounds
            proven[:] = False
        if proven.any():
            progress.outcome[proven] = INFEASIBLE
            self._record_proof(proven, gaps)
        return proven[running]

    def _record_proof(self, chosen: BoolArray, gap: FloatArray) -> None:
        """Record the factors of the proofs, leaving out those that the proofs do not need."""
        part, spans = self.state.part, self.state.problem.spans
        factor, n_factors = factor_of_links(self.state), len(spans.component)
        if self.state.forbids:
            bound, needs = self._support(chosen, np.zeros(part.n_links))
            single = chosen & (bound < 0.0)  # where a single factor needs a forbidden entry
            _record(self.state, single[spans.component] & needs)
            chosen = chosen & ~single
        largest = np.zeros(n_factors)
        np.maximum.at(largest, factor, np.abs(gap))
        involved = largest > BYSTANDER
        core = np.where(involved[factor], gap, 0.0)
        degree = np.bincount(part.link_variable, involved[factor], part.n_variables)
        excess = sums(part.link_variable, core, part.n_variables) / np.maximum(degree, 1.0)
        core -= np.where(involved[factor], excess[part.link_variable], 0.0)
        holds = chosen & (self._support(chosen, core)[0] < 0.0)
        named = np.where(holds[spans.component], involved, largest > 0.0)
        _record(self.state, named & chosen[spans.component])

    def _violate_masks(self) -> BoolArray:
        """Return for each component whether one of its factors holds a forbidden entry."""
        state = self.state
        if not state.forbids:
            return np.zeros(state.part.n_components, dtype=bool)
        problem = state.problem
        held_by = violating_factors(state, problem.iterate.z, state.additionals())
        return _components_of(state, held_by)

    def _gaps(self) -> FloatArray:
        """Return the gaps between means and copies, scaled to at most 1 in every component."""
        part, size = self.state.part, np.zeros(self.state.part.n_components)
        owner = part.component[part.link_variable]
        copies = part.negate(self.state.problem.iterate.z)
        with np.errstate(all="ignore"):  # where scores are so large that sums overflow
            total = sums(part.link_variable, copies, part.n_variables)
            mean = total / np.diff(part.variable_offsets)
            gap = mean[part.link_variable] - copies
            np.maximum.at(size, owner, np.abs(gap))
            scaled: FloatArray = gap / np.where(size == 0.0, 1.0, size)[owner]
        return scaled

    def _support(self, suspect: BoolArray, r: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return upper bounds on the largest <r, z> of each suspect component.

        Also returns for each factor whether all its structures hold a forbidden entry. An oracle
        gives the exact maximum. For other solvers, with z_t the projection of t r onto the allowed
        points, <r, z> <= <r, z_t> + ||z||^2 / (2 t) for every allowed z.
        """
        state, part, spans = self.state, self.state.part, self.state.problem.spans
        bound, needs = np.zeros(part.n_components), np.zeros(len(spans.component), dtype=np.bool_)
        for b, bucket in enumerate(part.buckets):
            rows = np.flatnonzero(suspect[bucket.component])
            if not rows.size:
                continue
            factors, own = bucket.select(rows), r[part.links_of(b)][ranges(bucket.offsets, rows)]
            extra = spans.first_additional[b] + ranges(bucket.additional_offsets, rows)
            forbidden = state.problem.extras.forbidden[extra]
            delta, decided = part.root_degree[factors.variable], state.decided(factors.variable)
            scores = np.where(decided == 0.0, SHARPNESS * own, decided)
            scores = np.where(factors.negated, -scores, scores)
            scores_v = np.where(forbidden, -PENALTY, 0.0)
            if state.solvers[b].lists_structures:
                # an active set would have to find its face at nearly infinite scores, where
                # rounding makes structures join and leave without end
                w, v = best_feasible(factors, scores / delta, scores_v, forbidden != 0)
                z, slack = w / delta, np.zeros(1)
            else:
                numbers = scores, scores_v, forbidden if state.forbids else None
                solver, z, v = solve_apart(factors, delta, *numbers)
                slack = 0.5 / SHARPNESS / delta**2
                bound[factors.component[solver.unsolved()]] = np.inf
            copies = np.where(factors.negated, 1.0 / delta - z, z)
            terms = own * copies + slack + PROOF_ROUNDING * np.abs(own)
            bound += sums(part.component[factors.variable], terms, part.n_components)
            held = _violates(factors, z, v, delta, decided, forbidden)
            needs[spans.first_factor[b] + rows] = held
        # oracles avoid forbidden entries: a structure that holds one shows that all do
        bound[_components_of(state, needs)] = -np.inf
        return bound, needs


# -------------------------------------------------------------------- forbidden entries


def find_violations(state: PartState) -> None:
    """Mark components that need entries that ``-inf`` forbids, and record the factors that do."""
    if not state.forbids:
        return
    problem, progress = state.problem, state.problem.progress
    held_by = violating_factors(state, problem.iterate.z, state.additionals())
    # a factor without allowed structures can run out of iterations
    limited = problem.direct & progress.at_inner_limit
    finished = (progress.outcome == CONVERGED) | limited
    infeasible = _components_of(state, held_by) & finished
    progress.outcome[infeasible] = INFEASIBLE
    _record(state, held_by & infeasible[problem.spans.component])


def violating_factors(state: PartState, z: FloatArray, v: FloatArray) -> BoolArray:
    """Return for each factor whether its local solution violates a score of ``-inf`` or ``inf``."""
    part, forbidden = state.part, state.problem.extras.forbidden
    violates = [np.empty(0, dtype=np.bool_)]
    for b, bucket in enumerate(part.buckets):
        links, additionals = part.links_of(b), part.additionals_of(b)
        delta, decided = part.root_degree[bucket.variable], state.decided(bucket.variable)
        numbers = z[links], v[additionals], delta, decided, forbidden[additionals]
        violates.append(_violates(bucket, *numbers))
    return np.concatenate(violates)


def _violates(
    bucket: Bucket,
    z: FloatArray,
    v: FloatArray,
    delta: FloatArray,
    decided: FloatArray,
    forbidden: ByteArray,
) -> BoolArray:
    """Compute `violating_factors` for a bucket."""
    means = np.where(bucket.negated, 1.0 - delta * z, delta * z)
    held = np.where(decided > 0.0, 1.0 - means, np.where(decided < 0.0, means, 0.0))
    return bucket.sums(held, np.where(forbidden, v, 0.0)) > VIOLATION


def _components_of(state: PartState, factors: BoolArray) -> BoolArray:
    return flags(state.problem.spans.component[factors], state.part.n_components)


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
