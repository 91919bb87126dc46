"""Proof that the constraints of a component contradict each other.

Let r be numbers on the links that sum to zero over the links of every variable. On consistent
copies of any marginals, <r, C mu> = 0. If the maxima of <r, z> over the factors' polytopes sum to
less than zero, no point of the polytopes is consistent. The gap between the variables' means and
their copies is one choice of r, and in a contradictory component it converges to a proof. The
polytopes exclude entries that a score of ``-inf`` forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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


def find_contradictions(state: PartState, running: IntArray) -> BoolArray:
    """Mark running components that are proven infeasible; return which of them are."""
    progress = state.problem.progress
    disagree, suspect = progress.primal_residual > SUSPECT, np.zeros_like(state.part.direct)
    if state.forbids:
        disagree |= _components_of(state, violating_factors(state))
    suspect[running] = disagree[running]
    if not suspect.any():
        return suspect[running]
    check_local_solutions(state)  # invalid solutions prove nothing
    gaps = _gaps(state)
    proven = suspect & (_support(state, suspect, gaps)[0] < 0.0)
    if out_of_time():  # interrupted projections give no valid bounds
        proven[:] = False
    if proven.any():
        progress.outcome[proven] = INFEASIBLE
        _record_proof(state, proven, gaps(np.arange(state.part.n_links)))
    return proven[running]


def _record_proof(state: PartState, chosen: BoolArray, gap: FloatArray) -> None:
    """Record the factors of the proofs, leaving out those that the proofs do not need."""
    part, spans = state.part, state.problem.spans
    factor, n_factors = factor_of_links(state), len(spans.component)
    if state.forbids:
        bound, needs = _support(state, chosen, np.zeros(part.n_links).take)
        single = chosen & (bound < 0.0)  # where a single factor needs a forbidden entry
        _record(state, single[spans.component] & needs)
        chosen = chosen & ~single
    largest = np.zeros(n_factors)
    np.maximum.at(largest, factor, np.abs(gap))
    involved = largest > BYSTANDER
    core = np.where(involved[factor], gap, 0.0)
    degree = np.bincount(part.link_variable, involved[factor], part.n_variables)
    excess = sums(part.link_variable, core, part.n_variables) / np.maximum(degree, 1.0)
    core -= np.where(involved[factor], excess[part.link_variable], 0.0)
    holds = chosen & (_support(state, chosen, core.take)[0] < 0.0)
    named = np.where(holds[spans.component], involved, largest > 0.0)
    _record(state, named & chosen[spans.component])


def _gaps(state: PartState) -> OnLinks:
    """Return the gaps between means and copies, scaled to at most 1 in every component."""
    part, z = state.part, state.problem.iterate.z
    mean, size = np.empty(part.n_variables), np.zeros(part.n_components)
    _write_means(state.handle, mean, size)
    size[size == 0.0] = 1.0

    def gaps(links: IntArray) -> FloatArray:
        variable, copies = part.link_variable[links], z[links]
        flipped = 1.0 / part.root_degree[variable] - copies
        with np.errstate(invalid="ignore"):  # where scores are so large that sums overflow
            gap = mean[variable] - np.where(part.negated[links], flipped, copies)
            scaled: FloatArray = gap / size[part.component[variable]]
        return scaled

    return gaps


def _support(state: PartState, suspect: BoolArray, r: OnLinks) -> tuple[FloatArray, BoolArray]:
    """Return upper bounds on the largest <r, z> of each suspect component.

    Also returns for each factor whether all its structures hold a forbidden entry. An oracle
    gives the exact maximum. For other solvers, with z_t the projection of t r onto the allowed
    points, <r, z> <= <r, z_t> + ||z||^2 / (2 t) for every allowed z.
    """
    spans = state.problem.spans
    bound, needs = np.zeros(state.part.n_components), np.zeros(len(spans.component), np.bool_)
    for b, bucket in enumerate(state.part.buckets):
        for rows in _blocks(bucket, np.flatnonzero(suspect[bucket.component])):
            of_block, held = _support_of_block(state, b, rows, r)
            bound += of_block
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


def _blocks(bucket: Bucket, rows: IntArray) -> Iterator[IntArray]:
    """Yield some factors in blocks, so that arrays of all their links are never needed at once."""
    sizes = np.diff(bucket.offsets)[rows] + np.diff(bucket.additional_offsets)[rows]
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // BLOCK_LINKS)) + 1
    yield from (some for some in np.split(rows, cuts) if len(some))


def _support_of_block(
    state: PartState, b: int, rows: IntArray, numbers: OnLinks
) -> tuple[FloatArray, BoolArray]:
    """Return the part of some factors of bucket `b` in `_support`.

    Returns for each component the sum of their bounds, infinite if one is unsolved, and for each of
    them whether it holds a forbidden entry.
    """
    part, extras, view = state.part, state.problem.extras, state.views[b]
    factors = view.bucket.select(rows)
    r = numbers(part.spans.first_link[b] + ranges(view.bucket.offsets, rows))
    forbidden = extras.forbidden[view.additionals][ranges(view.bucket.additional_offsets, rows)]
    delta, decided = part.root_degree[factors.variable], state.decided(factors.variable)
    scores = np.where(decided == 0.0, SHARPNESS * r, decided)
    scores = np.where(factors.negated, -scores, scores)
    scores_v = np.where(forbidden, -PENALTY, 0.0)
    unsolved, slack = np.empty(0, dtype=np.int64), np.zeros(len(r))
    if view.solver.lists_structures:
        # An active set would have to find its face at nearly infinite scores, where rounding makes
        # structures join and leave without end.
        w, v = best_feasible(factors, scores / delta, scores_v, forbidden != 0)
        z = w / delta
    else:  # by a solver of its own, which keeps the faces of the loop unchanged
        allowed = forbidden if state.forbids else None
        solver, z, v = solve_apart(factors, delta, scores, scores_v, allowed)
        unsolved, slack = factors.component[solver.unsolved()], 0.5 / SHARPNESS / delta**2
    copies = np.where(factors.negated, 1.0 / delta - z, z)
    terms = r * copies + slack + PROOF_ROUNDING * np.abs(r)
    bound = sums(part.component[factors.variable], terms, part.n_components)
    bound[unsolved] = np.inf
    return bound, _violates(factors, z, v, delta, decided, forbidden)


# -------------------------------------------------------------------- forbidden entries


def find_violations(state: PartState) -> None:
    """Mark components that need entries that ``-inf`` forbids, and record the factors that do."""
    if not state.forbids:
        return
    problem, progress = state.problem, state.problem.progress
    held_by = violating_factors(state)
    # a factor without allowed structures can run out of iterations
    limited = state.part.direct & progress.at_inner_limit
    finished = (progress.outcome == CONVERGED) | limited
    infeasible = _components_of(state, held_by) & finished
    progress.outcome[infeasible] = INFEASIBLE
    _record(state, held_by & infeasible[problem.spans.component])


def violating_factors(
    state: PartState, solutions: tuple[FloatArray, FloatArray] | None = None
) -> BoolArray:
    """Return for each factor whether its local solution violates a score of ``-inf`` or ``inf``.

    The `solutions` are those of slots and of additionals; by default the latest ones.
    """
    part, forbidden = state.part, state.problem.extras.forbidden
    z, v = solutions or (state.problem.iterate.z, state.additionals())
    violates = [np.empty(0, dtype=np.bool_)]
    for bucket, _, links, additionals in (view[:4] for view in state.views):
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
