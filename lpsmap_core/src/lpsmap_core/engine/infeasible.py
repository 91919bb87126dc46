"""Proof that the constraints of a component contradict each other.

Let r be numbers on the links that sum to zero over the links of every variable. On consistent
copies of any marginals, <r, C mu> = 0. If the maxima of <r, z> over the factors' polytopes sum to
less than zero, no point of the polytopes is consistent. The gap between the variables' means and
their copies is one choice of r, and in a contradictory component it converges to a proof. The
polytopes exclude entries that a score of ``-inf`` forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.problem import problem_at
from lpsmap_core.engine.soundness import check_local_solutions
from lpsmap_core.engine.state import PartState
from lpsmap_core.engine.stopping import CONVERGED, INFEASIBLE
from lpsmap_core.layout.layout import Bucket
from lpsmap_core.layout.ragged import flags, ranges, sums
from lpsmap_core.local.oracles import best_feasible
from lpsmap_core.local.solvers import solve_apart
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf
from lpsmap_jit.interrupts import out_of_time
from lpsmap_jit.threads import BLOCK_LINKS

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


OnLinks = Callable[[IntArray], FloatArray]
"""Returns numbers r of some links; arrays of all links would take much memory."""


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
            self._record_proof(proven, gaps(np.arange(self.state.part.n_links)))
        return proven[running]

    def _record_proof(self, chosen: BoolArray, gap: FloatArray) -> None:
        """Record the factors of the proofs, leaving out those that the proofs do not need."""
        part, spans = self.state.part, self.state.problem.spans
        factor, n_factors = factor_of_links(self.state), len(spans.component)
        if self.state.forbids:
            bound, needs = self._support(chosen, np.zeros(part.n_links).take)
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
        holds = chosen & (self._support(chosen, core.take)[0] < 0.0)
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

    def _gaps(self) -> OnLinks:
        """Return the gaps between means and copies, scaled to at most 1 in every component."""
        part, z = self.state.part, self.state.problem.iterate.z
        mean, size = np.empty(part.n_variables), np.zeros(part.n_components)
        _write_means(self.state.handle, mean, size)
        size[size == 0.0] = 1.0

        def gaps(links: IntArray) -> FloatArray:
            variable, copies = part.link_variable[links], z[links]
            flipped = 1.0 / part.root_degree[variable] - copies
            with np.errstate(invalid="ignore"):  # where scores are so large that sums overflow
                gap = mean[variable] - np.where(part.negated[links], flipped, copies)
                scaled: FloatArray = gap / size[part.component[variable]]
            return scaled

        return gaps

    def _support(self, suspect: BoolArray, r: OnLinks) -> tuple[FloatArray, BoolArray]:
        """Return upper bounds on the largest <r, z> of each suspect component.

        Also returns for each factor whether all its structures hold a forbidden entry. An oracle
        gives the exact maximum. For other solvers, with z_t the projection of t r onto the allowed
        points, <r, z> <= <r, z_t> + ||z||^2 / (2 t) for every allowed z.
        """
        state, part, spans = self.state, self.state.part, self.state.problem.spans
        bound, needs = np.zeros(part.n_components), np.zeros(len(spans.component), dtype=np.bool_)
        for b, bucket in enumerate(part.buckets):
            for rows in _blocks(bucket, np.flatnonzero(suspect[bucket.component])):
                block = _block_of(state, b, rows, r)
                lists = state.solvers[b].lists_structures
                z, v, unsolved, slack = _best(block) if lists else _project(block, state.forbids)
                copies = np.where(block.factors.negated, 1.0 / block.delta - z, z)
                terms = block.r * copies + slack + PROOF_ROUNDING * np.abs(block.r)
                owner = part.component[block.factors.variable]
                bound += sums(owner, terms, part.n_components)
                bound[unsolved] = np.inf
                held = _violates(block.factors, z, v, block.delta, block.decided, block.forbidden)
                needs[spans.first_factor[b] + rows] = held
        # oracles avoid forbidden entries: a structure that holds one shows that all do
        bound[_components_of(state, needs)] = -np.inf
        return bound, needs


@leaf
def _write_means(handle: Any, mean: FloatArray, size: FloatArray) -> None:
    """Write the mean of every variable's copies, and the largest gap of every component.

    `size` is zeros before.
    """
    problem = problem_at(handle)
    links, z = problem.links, problem.iterate.z
    for v in range(len(mean)):
        lo, hi, c = links.offsets[v], links.offsets[v + 1], links.component[v]
        one, total = 1.0 / links.root_degree[v], 0.0
        for e in range(lo, hi):
            copy = z[links.order[e]]
            total += one - copy if links.negated[e] else copy
        mean[v] = total / float(hi - lo)
        for e in range(lo, hi):
            copy = z[links.order[e]]
            gap = mean[v] - (one - copy if links.negated[e] else copy)
            size[c] = max(size[c], abs(gap))


# -------------------------------------------------------------------- blocks of factors


class _Block(NamedTuple):
    """Some factors of a bucket, with the numbers r of their links and with scores along r."""

    factors: Bucket
    delta: FloatArray
    decided: FloatArray
    """For each slot, the infinite score of its variable, or 0."""
    forbidden: ByteArray
    r: FloatArray
    scores: FloatArray
    scores_v: FloatArray


def _blocks(bucket: Bucket, rows: IntArray) -> Iterator[IntArray]:
    """Yield some factors in blocks, so that arrays of all their links are never needed at once."""
    sizes = np.diff(bucket.offsets)[rows] + np.diff(bucket.additional_offsets)[rows]
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // BLOCK_LINKS)) + 1
    yield from (some for some in np.split(rows, cuts) if len(some))


def _block_of(state: PartState, b: int, rows: IntArray, numbers: OnLinks) -> _Block:
    part, extras, bucket = state.part, state.problem.extras, state.part.buckets[b]
    factors = bucket.select(rows)
    r = numbers(part.spans.first_link[b] + ranges(bucket.offsets, rows))
    first_additional = state.problem.spans.first_additional[b]
    forbidden = extras.forbidden[first_additional + ranges(bucket.additional_offsets, rows)]
    decided = state.decided(factors.variable)
    scores = np.where(decided == 0.0, SHARPNESS * r, decided)
    return _Block(
        factors,
        part.root_degree[factors.variable],
        decided,
        forbidden,
        r,
        np.where(factors.negated, -scores, scores),
        np.where(forbidden, -PENALTY, 0.0),
    )


_Extreme = tuple[FloatArray, FloatArray, IntArray, FloatArray | float]
"""Local solutions, marginals of additionals, the components of unsolved factors, and the slack."""


def _best(block: _Block) -> _Extreme:
    """Return the best structures of some factors, as local solutions.

    An active set would have to find its face at nearly infinite scores, where rounding makes
    structures join and leave without end.
    """
    scores, forbidden = block.scores / block.delta, block.forbidden != 0
    w, v = best_feasible(block.factors, scores, block.scores_v, forbidden)
    return w / block.delta, v, np.empty(0, dtype=np.int64), 0.0


def _project(block: _Block, forbids: bool) -> _Extreme:
    """Return the local solutions of some factors by a solver of their own.

    That keeps the faces of the loop unchanged.
    """
    factors, delta, forbidden = block.factors, block.delta, block.forbidden if forbids else None
    solver, z, v = solve_apart(factors, delta, block.scores, block.scores_v, forbidden)
    return z, v, factors.component[solver.unsolved()], 0.5 / SHARPNESS / delta**2


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
