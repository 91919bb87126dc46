"""Scores of any magnitude: scores far larger than the rest of their component decide first.

A mask of -1e9 means "never", and so do most scores that are a hundred times all others. In sums
with them the other scores would lose their digits, and the loop would take many iterations to reach
large duals. A component whose scores fall into *base* and *huge* ones is therefore solved without
the huge ones. The factors then show whether the result is the solution:

- Huge negative scores are forbidden. The solution is the true one if no factor's best structure, at
  the duals found and the true scores, holds a forbidden entry.
- Huge scores are *released* if a factor needs them, such as a fully masked row of padding, or if
  they are positive. With c = -1 and 1 for huge negative and positive scores of one level M, the
  score of a released entry becomes its difference from its level plus a moderate multiple K c.
  With N the normal cone of the constraints at the solution mu, ``e + K c - mu`` is in N. If c is in
  N too, then so is ``e + M c - mu``, since N is a convex cone: mu is the true solution. This holds
  exactly if mu is its own projection ``argmax <mu + K c, x> - 1/2 ||x||^2``, which is solved as a
  test.
- Other scores beyond 1e8 are *scaled* down, which is the same proof with c their ratios to the
  largest. Ties of c may be rounding, so the solution has to be integral and to win by a margin.

If no proof succeeds, or if released scores have different levels, a component with scores up to 1e8
is solved as it is. Beyond, its status is ``PRECISION_LIMIT``.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.admm import run_loop, solve_part
from lpsmap_core.engine.infeasible import factor_of_links, violating_factors
from lpsmap_core.engine.magnitudes import (
    HUGE_RATIO,
    MAX_PRECISE,
    Split,
    any_large,
)
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.problem import set_scores
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.state import PartState, initial_state
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.engine.stopping import CONVERGED, INFEASIBLE, ITERATING
from lpsmap_core.layout.layout import Bucket, Part
from lpsmap_core.layout.ragged import flags
from lpsmap_core.local.finite_scores import ORACLE_MULTIPLE
from lpsmap_core.local.local_solver import UNTIL_SOLVED
from lpsmap_core.local.oracles import HELD, best_structures
from lpsmap_core.local.solvers import local_solver
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.interrupts import out_of_time

MAX_ROUNDS = 6
"""Maximum number of solves of a component, each with different scores forbidden or released."""

PROJECTION_TOLERANCE = 1e-7
"""A projection that moves the solution by more than this, and by more than ten times the tolerance,
disproves it."""

WHOLE_TOLERANCE = 1e-9
"""Distance from 0 or 1 within which a marginal counts as integral."""

WHOLE_MARGIN = 0.25
"""Handicap of an integral solution for scaled scores, which rounding may have tied."""


def solve_quadratic(
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    skip: BoolArray,
    options: Options,
    warm: WarmStart | None = None,
) -> PartState:
    """Solve one part with the quadratic term, for scores of any magnitude; see `Engine.solve`."""
    if not any_large(eta):
        state = initial_state(part, eta, eta_v, options, warm)
        if state.largest <= HUGE_RATIO or not any_large(eta_v):
            run_loop(state, ~skip, options)
            return state
    split = Split(part, eta, eta_v, skip)
    if not (split.considered | split.scaled).any():
        state = solve_part(part, eta, eta_v, skip, options, warm)
    else:
        state = _solve_split(split, skip, options, warm)
    state.shrunk = split.shrunk
    state.imprecise = split.unproven | ((split.largest > MAX_PRECISE) & ~split.proven)
    return state


# -------------------------------------------------------------------- rounds of solves


def _solve_split(
    split: Split, skip: BoolArray, options: Options, warm: WarmStart | None
) -> PartState:
    """Solve with huge scores forbidden or released, until the solution is proven."""
    part = split.part
    _separate_levels(split)
    state = initial_state(part, *split.reduced(), options, warm)
    _release_needed(state, split, options)
    chosen, spent = ~skip, np.zeros(part.n_components, dtype=np.int64)
    progress = state.problem.progress
    for _ in range(MAX_ROUNDS):
        run_loop(state, chosen, options)
        again = _revise(state, split, chosen, options)
        state.out_of_time = out_of_time()
        if state.out_of_time:  # interrupted proofs prove nothing
            again = chosen & split.components_of(split.huge)
            progress.outcome[again] = ITERATING
        if state.out_of_time or not again.any():
            break
        chosen = again
        spent[chosen] += progress.iterations[chosen]
        set_scores(state.handle, chosen, *split.reduced(), options)
    progress.iterations[:] += spent
    split.unproven |= again & (progress.outcome == CONVERGED)
    return state


def _separate_levels(split: Split) -> None:
    """Raise the cut of components whose released scores have several levels, or give them up."""
    while (several := split.without_level).any():
        split.give_up(several & ~split.raise_cut(several))


def _release_needed(state: PartState, split: Split, options: Options) -> None:
    """Release the huge scores that some factor needs, or raise the cut to larger ones."""
    needing = split.components_of(split.withheld)
    while needing.any():
        factors = _blocked_factors(state, needing)
        held = _entries_of(state, factors) & split.withheld
        needing = split.components_of(held)
        held &= ~split.raise_cut(needing)[split.owner]
        split.released |= held
        _separate_levels(split)
        if needing.any():
            set_scores(state.handle, needing, *split.reduced(), options)
        held &= split.released
        if held.any():
            _charge(state, split, factors, held, options)


def _charge(
    state: PartState, split: Split, factors: BoolArray, held: BoolArray, options: Options
) -> None:
    """Start from duals that charge the released scores to the factors that need them.

    The other factors see base scores only, and step sizes follow from base scores. An entry that
    all structures of a factor hold costs the factor a constant.
    """
    part, n_variables = state.part, split.part.n_variables
    iterate, progress = state.problem.iterate, state.problem.progress
    degree = np.diff(part.variable_offsets)
    of_link = np.repeat(np.arange(n_variables), degree)  # in the order of the variables
    pays = (factors[factor_of_links(state)])[part.links.order] & held[of_link]
    payers, first = np.unique(of_link[pays], return_index=True)
    share = np.zeros(n_variables)
    share[payers] = split.stand_in()[payers] / part.root_degree[payers]
    dual = -share[of_link]
    dual[np.flatnonzero(pays)[first]] += (share * degree)[payers]
    np.copyto(iterate.duals, dual, where=flags(payers, n_variables)[of_link])
    components = flags(part.component[payers], part.n_components)
    base = np.where(split.huge, split.rest(), split.scores)
    felt = split.split_entries(np.where(split.withheld, -np.inf, base))
    step_size = first_step_sizes(part, state.part.direct, *felt, options)
    for sizes in (progress.step_size, progress.first_step_size):
        np.copyto(sizes, step_size, where=components)


def _revise(state: PartState, split: Split, solved: BoolArray, options: Options) -> BoolArray:
    """Revise the forbidden and released scores of unproven components; return which changed."""
    progress = state.problem.progress
    withheld, released = split.components_of(split.withheld), split.components_of(split.released)
    needing = violating_factors(state)
    lacking = flags(state.problem.spans.component[needing], len(solved))
    lacking |= progress.outcome == INFEASIBLE
    lacking &= solved & withheld
    judged = solved & (progress.outcome == CONVERGED) & ~lacking
    unjustified = _profitable_entries(state, split, judged & withheld)
    doubtful = split.components_of(unjustified)
    claimed = released | split.scaled
    unproven = _unproven_components(state, split, judged & claimed & ~doubtful, options)
    split.proven |= judged & (withheld | claimed) & ~doubtful & ~unproven
    split.released |= (lacking[split.owner] & split.withheld) | unjustified
    small = split.largest <= MAX_PRECISE
    split.give_up((doubtful | unproven) & small)
    _separate_levels(split)
    state.contradicting = {c: f for c, f in state.contradicting.items() if not lacking[c]}
    return lacking | doubtful | (unproven & small)


# -------------------------------------------------------------------- tests by the factors


def _blocked_factors(state: PartState, chosen: BoolArray) -> BoolArray:
    """Return the factors whose structures all hold a forbidden entry."""
    part = state.part
    slots = part.sign * np.where(state.forbidden, -np.inf, 0.0)[part.link_variable]
    scores_v = np.where(state.problem.extras.forbidden, -np.inf, 0.0)
    w, n = _best_structures(state, chosen, slots, scores_v)
    return violating_factors(state, (w / part.delta, n)) & chosen[state.problem.spans.component]


def _profitable_entries(state: PartState, split: Split, chosen: BoolArray) -> BoolArray:
    """Return the withheld entries that some factor's best structure holds at their true scores."""
    part, extras, n_variables = state.part, state.problem.extras, state.part.n_variables
    held = np.zeros(len(split.scores), dtype=bool)
    if not chosen.any():
        return held
    stand_in = split.stand_in()
    true = np.where(stand_in == 0.0, split.scores, stand_in)
    withheld = split.withheld[:n_variables][part.link_variable]
    share = (true[:n_variables] / part.root_degree**2)[part.link_variable]
    slope = (state.slot_scores() - state.problem.iterate.z) / part.delta
    slots = np.where(withheld, part.sign * share, slope)
    withheld_v = split.withheld[n_variables:]
    scores_v = np.where(extras.forbidden, -np.inf, extras.eta)
    w, n = _best_structures(
        state, chosen, slots, np.where(withheld_v, true[n_variables:], scores_v)
    )
    own = part.sign * w + (part.sign < 0.0)
    held[part.link_variable[withheld & (own > HELD)]] = True
    held[n_variables:] = withheld_v & (n > HELD)
    held &= chosen[split.owner]
    return held


def _best_structures(
    state: PartState, chosen: BoolArray, slots: FloatArray, scores_v: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the best structures of some components' factors, dense, for scores of their slots.

    For a solver without an oracle, the solution of the local problem around the last solution
    stands in: it holds every entry that the best structure would add.
    """
    part, problem = state.part, state.problem
    w, n = np.zeros(part.n_links), np.zeros(len(scores_v))
    for view in state.views:
        bucket, solver, links, additionals = view[:4]
        rows = np.flatnonzero(chosen[bucket.component])
        if not rows.size:
            continue
        forced = state.forbidden[bucket.variable]
        forbidden = problem.extras.forbidden[additionals] != 0
        own, own_v = _clip_forced(bucket, slots[links], scores_v[additionals], forced, forbidden)
        if solver.lists_structures:
            w[links], n[additionals] = best_structures(bucket, own, own_v)
            continue
        delta, z = part.root_degree[bucket.variable], view.z
        best, best_v = z.copy(), problem.extras.v[additionals].copy()
        local_solver(bucket, delta).solve(rows, own * delta + z, own_v, best, best_v, UNTIL_SOLVED)
        w[links], n[additionals] = best * delta, best_v
    return w, n


def _clip_forced(
    bucket: Bucket, slots: FloatArray, scores_v: FloatArray, forced: BoolArray, forbidden: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return scores whose forbidden entries are only as large as is needed to decide."""
    others, others_v = np.where(forced, 0.0, slots), np.where(forbidden, 0.0, scores_v)
    most = ORACLE_MULTIPLE * (1.0 + bucket.sums(np.abs(others), np.abs(others_v)))
    of_slots = np.repeat(most, np.diff(bucket.offsets))
    of_additionals = np.repeat(most, np.diff(bucket.additional_offsets))
    return (
        np.where(forced, np.clip(slots, -of_slots, of_slots), slots),
        np.where(forbidden, np.maximum(scores_v, -of_additionals), scores_v),
    )


def _entries_of(state: PartState, factors: BoolArray) -> BoolArray:
    part = state.part
    variables = flags(part.link_variable[factors[factor_of_links(state)]], part.n_variables)
    n_additionals = np.diff(state.problem.spans.additional_offsets)
    return np.concatenate([variables, np.repeat(factors, n_additionals)])


def _unproven_components(
    state: PartState, split: Split, chosen: BoolArray, options: Options
) -> BoolArray:
    """Return the components whose solution is not its own projection along the levels."""
    if not chosen.any():
        return chosen
    part, iterate = state.part, state.problem.iterate
    mu, nu = state.marginals(), state.additionals()
    marginals = np.concatenate([mu, nu])
    whole = np.abs(marginals - np.round(marginals)) <= WHOLE_TOLERANCE
    fractional = split.scaled & split.components_of(~whole)
    handicap = np.where(split.scaled, WHOLE_MARGIN, 0.0)[split.owner] * (2.0 * marginals - 1.0)
    scores = np.concatenate([mu, np.zeros(len(nu))]) + split.stand_in() - handicap
    eta, eta_v = split.split_entries(np.where(np.isneginf(split.scores), -np.inf, scores))
    u, duals = iterate.u.copy(), iterate.duals.copy()
    warm = WarmStart(u, duals, state.problem.progress.step_size, chosen)
    tight = Options(max_iter=options.max_iter, tol=min(options.tol, 1e-8), threads=options.threads)
    other = solve_part(part, eta, eta_v, ~chosen, tight, warm)
    moved = np.zeros(part.n_components)
    np.maximum.at(moved, part.component, np.abs(other.marginals() - mu))
    gain = np.where(np.isfinite(eta_v), eta_v, 0.0) * (other.additionals() - nu)
    gained = np.bincount(part.additional_component, gain, part.n_components)
    tolerance = max(PROJECTION_TOLERANCE, 10.0 * options.tol)
    stays = (moved <= tolerance) & (gained <= tolerance * split.unit())
    stays &= other.problem.progress.outcome == CONVERGED
    return np.logical_and(chosen, ~stays | fractional)
