"""The loop: LP-SparseMAP by ADMM (Niculae & Martins 2020, Algorithm 1).

An iteration solves the local problems of a component. One pass over the variables then averages
their copies, updates the duals and writes the next local scores. For a variable v, its links l and
its factors f, with the sign of the paper's line 6 corrected::

    a_l = (eta_v / delta_v + lambda_l + gamma u_v) / (q + gamma)
    z_f = the local solution at (a, eta_N / (q + gamma))
    u_v = mean over the links l of v of z_l
    lambda_l += gamma (u_v - z_l)

where q is 1, or 0 without the quadratic term, for LP-MAP (AD3, Martins et al. 2015). Added to this
are over-relaxation, a step size for each component that balances its two residuals, and a polish
once the faces have settled. A component of one factor needs no loop: with the quadratic term, its
step size is 0, which makes the first iteration the solution; without, its best structure is one.

Python drives the loop, and kernels do the arithmetic. The components of a block are iterated side
by side, those that have finished leave it, and each thread takes one block after the other. The
solution of a component does not depend on the other components.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.anderson import FIRST_ACCELERATED, Acceleration
from lpsmap_core.engine.faces import draw_general_position
from lpsmap_core.engine.infeasible import FIRST_TEST, find_contradictions
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.polish import (
    PERIOD,
    POLISH_ITERATIONS,
    WARM_PROBES,
    Polish,
    find_due,
    make_polish,
    polish_at,
    polish_settled,
    revert_failed_polishes,
    revert_untested_polishes,
    waits_for_polish,
)
from lpsmap_core.engine.problem import ONE, Iterate, LoopProblem, problem_at
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.selection import (
    Selection,
    Variables,
    adopt_local_solutions,
    keep_chosen,
    scatter_direct,
    select_blocks,
    solve_locally,
)
from lpsmap_core.engine.soundness import check_local_solutions
from lpsmap_core.engine.starts import centre_duals, checked_flags, starts_of
from lpsmap_core.engine.state import ONE_PASS_CHEAPER, PartState, initial_state
from lpsmap_core.engine.step_size import balanced_step_size
from lpsmap_core.engine.stopping import (
    CONVERGED,
    EXACT_RESIDUAL,
    ITERATING,
    RESIDUAL_ROUNDING,
    judge,
)
from lpsmap_core.layout.arrangement import Links
from lpsmap_core.layout.layout import Part
from lpsmap_core.layout.ragged import flags
from lpsmap_core.local.local_solver import SHORT_RUN, UNTIL_SOLVED
from lpsmap_core.local.oracles import best_feasible
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf
from lpsmap_jit.interrupts import interrupted, out_of_time, raise_interrupt, stopped
from lpsmap_jit.memory import Memory
from lpsmap_jit.threads import COUPLED_WORK, in_shares

CLOCK_PERIOD = 10
"""Iterations per round over all components if time is limited, so that every component progresses.
"""

UNDERFLOW = 1e-290
"""Smaller means are set to zero: a mean that keeps shrinking would become subnormal, which is slow.
"""

TWO = np.uint64(2)


class LoopSettings(NamedTuple):
    """Settings of a run of the loop."""

    stop: int
    """Last iteration of this run."""
    last: int
    """Last iteration of the last run."""
    max_inner_iter: int
    tol: float
    dual_tol: float
    adapt: bool
    relaxation: float


def solve_part(
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    skip: BoolArray,
    options: Options,
    warm: WarmStart | None = None,
) -> PartState:
    """Solve one part; see `Engine.solve` for the arguments."""
    state = initial_state(part, eta, eta_v, options, warm)
    run_loop(state, ~skip, options)
    return state


def run_loop(state: PartState, chosen: BoolArray, options: Options) -> None:
    """Solve some components, those of several factors by the loop, up to a limit."""
    alone = state.part.direct
    (direct,), (coupled,) = (alone & chosen).nonzero(), (chosen > alone).nonzero()
    if len(direct):
        solve = _solve_single_factors if state.problem.quadratic else _take_best_structures
        solve(state, direct, options)
        state.out_of_time = out_of_time()
    if len(coupled):
        _solve_coupled(state, coupled, options)
    _zero_unstarted(state)
    check_local_solutions(state)


def _solve_coupled(state: PartState, coupled: IntArray, options: Options) -> None:
    """Iterate on components of several factors, and test those that go on for contradictions."""
    progress, linear = state.problem.progress, state.problem.quadratic == 0.0
    # without the quadratic term, a face does not determine the solution
    workspace = make_polish(state, options.adapt and not linear)
    state.starts = starts_of(state.part, linear) if options.adapt else []
    inner = SHORT_RUN if options.max_inner_iter is None else options.max_inner_iter
    tolerances = options.tol, options.tol if options.dual_tol is None else options.dual_tol
    next_test, stop = FIRST_TEST, 0
    while len(coupled) and stop < options.max_iter and not state.out_of_time:
        last, stop = stop, min(next_test, options.max_iter)
        if options.max_time is not None:
            stop = min(stop, last + CLOCK_PERIOD)
        settings = LoopSettings(
            stop, options.max_iter, inner, *tolerances, options.adapt, options.relaxation
        )
        advance_components(state, coupled, workspace, settings, options.threads)
        coupled = coupled[progress.outcome[coupled] == ITERATING]
        last_chance = stop == options.max_iter and stop > FIRST_TEST
        if len(coupled) and (stop == next_test or last_chance):
            next_test *= 2
            coupled = coupled[~find_contradictions(state, coupled)]
        state.out_of_time = out_of_time()


def _zero_unstarted(state: PartState) -> None:
    """Write zeros for the additionals of components that no iteration has reached."""
    v = state.problem.extras.v
    if len(v) and not state.problem.progress.iterations.all():
        v[state.part.on_additionals(state.problem.progress.iterations == 0)] = 0.0


# -------------------------------------------------------------------- components of one factor


def _solve_single_factors(state: PartState, components: IntArray, options: Options) -> None:
    """Solve components of one factor, whose local problem is the whole problem."""
    inner = options.max_inner_iter or UNTIL_SOLVED
    cheaper = ONE_PASS_CHEAPER if state.one_pass else 1
    threads = 1 if state.vectorised else options.threads
    progress, iterate = state.problem.progress, state.problem.iterate

    def run(share: IntArray) -> None:
        for selection in select_blocks(state, share):
            if interrupted():
                return
            own = selection.components
            scatter_direct(own, state.handle, iterate.score, 1.0, iterate.a)
            solve_locally(state, selection, inner)
            if stopped():
                return
            adopt_local_solutions(own, state.handle)
            progress.iterations[own], progress.stale[own] = 1, False
            finite = progress.primal_residual[own] == 0.0
            solved = finite & ~progress.at_inner_limit[own]
            progress.outcome[own] = np.where(solved, CONVERGED, ITERATING)
            if len(state.trace):
                state.trace[0, 0, own] = progress.primal_residual[own]
                state.trace[0, 1, own] = 0.0

    in_shares(run, components, state.part.sizes[components], threads, cheaper)


def _take_best_structures(state: PartState, components: IntArray, options: Options) -> None:
    """Solve components of one factor without the quadratic term, by their best structures."""
    part, problem = state.part, state.problem
    iterate, extras, progress = problem.iterate, problem.extras, problem.progress
    alone = flags(components, part.n_components)
    # every variable has one link, so that all degrees are 1
    slots = part.sign * iterate.score[part.link_variable]
    for view in state.views:
        bucket, solver, links, additionals = view[:4]
        rows = np.flatnonzero(alone[bucket.component])
        if not rows.size:
            continue
        forbidden, eta_v = extras.forbidden[additionals] != 0, extras.eta[additionals]
        w, n = best_feasible(bucket, slots[links], eta_v, forbidden)
        chosen = np.repeat(alone[bucket.component], np.diff(bucket.offsets))
        chosen_v = np.repeat(alone[bucket.component], np.diff(bucket.additional_offsets))
        z, v, a = view.z, extras.v[additionals], view.a
        z[chosen], v[chosen_v] = w[chosen], n[chosen_v]
        # local scores whose projection this is, for later calls of `structures`
        reach = 1.0 + 2.0 * float(np.abs(eta_v[~forbidden]).sum())
        a[chosen] = np.where(w <= 0.0, -reach, np.where(w >= 1.0, 1.0 + reach, w))[chosen]
        view.eta_v[chosen_v] = eta_v[chosen_v]
        if solver.lists_structures:
            solver.solve(rows, a.copy(), eta_v, z.copy(), v.copy(), UNTIL_SOLVED)
    iterate.u[alone[part.component]] = state.marginals()[alone[part.component]]
    progress.primal_residual[components] = progress.dual_residual[components] = 0.0
    progress.iterations[components], progress.outcome[components] = 1, CONVERGED


# -------------------------------------------------------------------- coupled components


def advance_components(
    state: PartState,
    components: IntArray,
    workspace: Memory[Polish],
    settings: LoopSettings,
    threads: int = 1,
) -> None:
    """Iterate on coupled components until they are solved, or this run ends."""

    def run(share: IntArray) -> None:
        for selection in select_blocks(state, share):
            _iterate(state, selection, workspace, settings)

    sizes = state.part.sizes[components]
    in_shares(run, components, sizes, 1 if state.vectorised else threads, COUPLED_WORK)


def _iterate(
    state: PartState, selection: Selection, workspace: Memory[Polish], settings: LoopSettings
) -> None:
    """Iterate on a block until every component has finished or this run ends."""
    handle, polish = workspace.handle, workspace.record
    progress = state.problem.progress
    iteration = int(progress.iterations[selection.components[0]])
    covered, drawn = len(polish.numbers) > 0, False
    is_warm = covered and bool(progress.warm[selection.components].any())
    if iteration == 0:
        _begin(state, selection)
    n_stale, accelerations = len(selection.components), list[Acceleration]()
    first_accelerated = max(iteration + 1, FIRST_ACCELERATED)
    while len(selection.components) and iteration < settings.stop:
        iteration += 1
        if iteration == first_accelerated:
            chosen = selection.components[polish.accelerated[selection.components]]
            accelerations = [Acceleration(c, state) for c in chosen.tolist()]
        for acceleration in accelerations:
            acceleration.record()
        if n_stale:
            _write_local_scores(state, selection)
        solve_locally(state, selection, settings.max_inner_iter)
        if interrupted():
            break
        progress.iterations[selection.components] = iteration
        regular = iteration % PERIOD == 0
        probes = regular or (iteration <= WARM_PROBES and is_warm)
        if covered and probes and find_due(selection.components, handle, regular):
            if not drawn:
                draw_general_position(selection.variables, state.handle, polish.numbers)
                drawn = True
            polish_settled(state, selection, workspace)
        n_finished, n_stale = average_and_judge(*selection[:2], handle, settings, iteration)
        if len(state.trace):
            c, residuals = selection.components, state.trace[iteration - 1]
            residuals[:, c] = progress.primal_residual[c], progress.dual_residual[c]
        if n_finished:
            iterating = progress.outcome == ITERATING
            selection = keep_chosen(selection, state.part, iterating)
            accelerations = [one for one in accelerations if iterating[one.component]]
        for acceleration in accelerations:
            acceleration.finish()
            n_stale = 1
    if iteration > 1 and stopped():
        _leave_midway(*selection[:2], handle, covered)
    raise_interrupt()


@leaf
def _leave_midway(components: IntArray, variables: Variables, handle: Any, polished: bool) -> None:
    """Revert untested polishes of interrupted components, and write the components' residuals.

    Some of their local solutions are newer than the means.
    """
    if polished:
        revert_untested_polishes(components, variables, handle)
    problem = problem_at(handle)
    links, iterate, gaps = problem.links, problem.iterate, problem.progress.primal_residual
    for v in variables:
        c, one = links.component[v], 1.0 / links.root_degree[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            copy = iterate.z[links.order[e]]
            gap = iterate.u[v] - (one - copy if links.negated[e] else copy)
            gaps[c] = max(gaps[c], links.root_degree[v] * abs(gap))


def _begin(state: PartState, selection: Selection) -> None:
    """Start components at the points that plugins find."""
    iterate, progress = state.problem.iterate, state.problem.progress
    for start, served in state.starts:
        chosen = selection.components[served[selection.components]]
        if len(chosen):
            rounding = RESIDUAL_ROUNDING * progress.largest_score
            point = iterate.score, rounding, iterate.u, iterate.duals
            started = chosen[
                checked_flags(start, start.find(state.part, chosen, *point), len(chosen))
            ]
            centre_duals(started, state.handle)
            progress.warm[started] = False


def _write_local_scores(state: PartState, selection: Selection) -> None:
    """Write the local scores of components whose iterate or step size has changed."""
    if len(state.problem.extras.eta):
        for b, rows in enumerate(selection.rows):
            _scale_additionals(rows, b, state.handle)
    _write_slot_scores(*selection[:2], state.handle)


@leaf
def _scale_additionals(rows: IntArray, b: int, problem: Any) -> None:
    """Write the local scores eta_N / (quadratic + step size) of a bucket where they are stale."""
    record = problem_at(problem)
    spans, extras, progress = record.spans, record.extras, record.progress
    for row in rows:
        f = spans.first_factor[b] + row
        c = spans.component[f]
        if not progress.stale[c]:
            continue
        factor = 1.0 / (record.quadratic + progress.step_size[c])
        for i in range(spans.additional_offsets[f], spans.additional_offsets[f + 1]):
            extras.scaled[i] = extras.eta[i] * factor


@leaf
def _write_slot_scores(components: IntArray, variables: Variables, problem: Any) -> None:
    """Write the local scores of the variables of stale components (line 3)."""
    record = problem_at(problem)
    links, iterate, progress = record.links, record.iterate, record.progress
    for v in variables:
        c = links.component[v]
        if not progress.stale[c]:
            continue
        g = progress.step_size[c]
        base = iterate.score[v] + g * iterate.u[v]
        inverse = 1.0 / (record.quadratic + g)
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            a = (base + iterate.duals[e]) * inverse
            iterate.a[links.order[e]] = 1.0 / links.root_degree[v] - a if links.negated[e] else a
    for c in components:
        progress.stale[c] = False


@leaf
def average_and_judge(
    components: IntArray, variables: Variables, handle: Any, settings: LoopSettings, iteration: int
) -> tuple[int, int]:
    """Average the copies, update the duals (lines 5 and 6), and judge the components.

    Skips components that the polish has moved: their local solutions belong to an older iterate.
    Returns the numbers of finished and of stale components.
    """
    problem, polish, n_finished, n_stale = problem_at(handle), polish_at(handle), 0, 0
    progress, tolerances = problem.progress, (settings.tol, settings.dual_tol)
    may_wait = settings.adapt and iteration + POLISH_ITERATIONS <= settings.last
    for c in components:
        if not polish.selected[c]:
            _average_component(c, settings.relaxation, problem)
    for c in components:
        if polish.selected[c]:
            continue
        residuals = progress.primal_residual[c], progress.dual_residual[c]
        largest_score = progress.largest_score[c]
        outcome = judge(*residuals, largest_score, progress.at_inner_limit[c], *tolerances)
        if outcome == CONVERGED and may_wait and waits_for_polish(c, handle, settings.tol):
            outcome = ITERATING
        if outcome != ITERATING:
            progress.outcome[c] = outcome
            n_finished += 1
        elif settings.adapt:
            before, first_size = progress.step_size[c], progress.first_step_size[c]
            step_size = balanced_step_size(
                iteration, problem.quadratic, before, first_size, *residuals, largest_score
            )
            progress.step_size[c] = step_size
            progress.stale[c] |= step_size != before
    if settings.adapt:
        revert_failed_polishes(components, variables, handle)
    for c in components:
        n_stale += progress.stale[c]
        polish.selected[c] = False  # for the next iteration
    return n_finished, n_stale


@leaf
def _average_component(c: int, relaxation: float, problem: LoopProblem) -> None:
    """Average the copies of a component, and write its residuals."""
    links, iterate, progress = problem.links, problem.iterate, problem.progress
    begin, g = problem.spans.first_variable, progress.step_size[c]
    first, last = np.uint64(begin[c]), np.uint64(begin[c + 1])
    inverse = 1.0 / (problem.quadratic + g)
    gap, change = _average_variables(first, last, links, iterate, g, relaxation, inverse)
    if gap <= EXACT_RESIDUAL and relaxation != 1.0:
        # Copies that agree are mostly the solution. Over-relaxed means would near them only by a
        # factor 1 - relaxation an iteration, so the means take the plain step (line 5).
        _average_variables(first, last, links, iterate, g, 1.0, inverse)
    progress.primal_residual[c], progress.dual_residual[c] = gap, g * change


@leaf
def _average_variables(
    first: np.uint64,
    last: np.uint64,
    links: Links,
    iterate: Iterate,
    g: float,
    relax: float,
    inverse: float,
) -> tuple[float, float]:
    """Average the copies of some variables, update the duals and write the next local scores.

    For each variable v and its links l, with `relax` r, `g` gamma and `inverse` 1 / (q + gamma)::

        mean = mean over l of z_l
        u_v = r mean + (1 - r) u_v
        lambda_l += r gamma (mean - z_l)
        a_l = (eta_v / delta_v + lambda_l + gamma u_v) / (q + gamma)

    A negated link has ``1 / delta_v - z_l`` for z_l, and ``1 / delta_v - a_l`` for a_l.

    Most variables have one or two copies. Their case is written out here, which takes half the time
    of a call for each variable.

    Returns the largest disagreement of copies, infinite if one is NaN, and the largest change of a
    marginal.
    """
    offsets, order, negated = links.offsets, links.order, links.negated
    u, duals, scores, z = iterate.u, iterate.duals, iterate.a, iterate.z
    score, step, largest, change = iterate.score, relax * g, 0.0, 0.0
    for v in range(first, last):
        lo, hi = offsets[v], offsets[v + ONE]
        if hi - lo > TWO:
            gap, moves = _average_copies(np.uint64(v), lo, hi, links, iterate, g, relax, inverse)
            largest, change = max(largest, gap), max(change, moves)
            continue
        end = hi - ONE
        one, two, root = order[lo], order[end], links.root_degree[v]
        x, y = z[one], z[two]
        x = 1.0 / root - x if negated[lo] else x
        y = 1.0 / root - y if negated[end] else y
        mean, previous = 0.5 * (x + y), u[v]
        relaxed = relax * mean + (1.0 - relax) * previous
        relaxed = relaxed if abs(relaxed) > UNDERFLOW else 0.0
        u[v], base = relaxed, score[v] + g * relaxed
        dual = duals[end] = duals[end] + step * (mean - y)
        a = (base + dual) * inverse
        scores[two] = 1.0 / root - a if negated[end] else a
        if lo < end:
            dual = duals[lo] = duals[lo] + step * (mean - x)
            a = (base + dual) * inverse
            scores[one] = 1.0 / root - a if negated[lo] else a
        if not abs(mean) < np.inf:
            largest = np.inf
            continue
        largest = max(largest, root * max(abs(mean - x), abs(mean - y)))
        change = max(change, root * abs(mean - previous))
    return largest, change


@leaf
def _average_copies(
    v: np.uint64,
    lo: np.uint64,
    hi: np.uint64,
    links: Links,
    iterate: Iterate,
    g: float,
    relax: float,
    inverse: float,
) -> tuple[float, float]:
    """Average the copies of one variable, on the links lo to hi, as in `_average_variables`.

    Returns the largest disagreement of its copies, and the change of its marginal. The disagreement
    is infinite if a copy is NaN, which comparisons would not detect.
    """
    order, root_degree, negated = links.order, links.root_degree, links.negated
    u, duals, scores, z = iterate.u, iterate.duals, iterate.a, iterate.z
    total, one = 0.0, 1.0 / root_degree[v]
    for e in range(lo, hi):
        copy = z[order[e]]
        total += one - copy if negated[e] else copy
    mean, previous = total / float(hi - lo), u[v]
    relaxed = relax * mean + (1.0 - relax) * previous
    u[v] = relaxed if abs(relaxed) > UNDERFLOW else 0.0
    base, step, largest = iterate.score[v] + g * relaxed, relax * g, 0.0
    for e in range(lo, hi):
        link = order[e]
        copy = z[link]
        gap = mean - (one - copy if negated[e] else copy)
        largest = max(largest, abs(gap))
        dual = duals[e] + step * gap
        duals[e] = dual
        a = (base + dual) * inverse
        scores[link] = one - a if negated[e] else a
    if not abs(mean) < np.inf:
        return np.inf, 0.0
    return root_degree[v] * largest, root_degree[v] * abs(mean - previous)
