"""The kernels of the loop, which iterate on components one after the other or batched.

`lpsmap_core.engine.admm` runs them and describes the iterations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.anderson import (
    History,
    begin_history,
    make_history,
    record_start,
    review_acceleration,
)
from lpsmap_core.engine.faces import draw_general_position
from lpsmap_core.engine.lazy_steps import call_acceleration, call_polish, call_start
from lpsmap_core.engine.newton_start import has_newton_start
from lpsmap_core.engine.polish import (
    EARLY,
    PERIOD,
    POLISH_ITERATIONS,
    LoopWorkspace,
    Polish,
    find_due,
    loop_workspace_at,
    needs_last_polish,
    revert_failed_polishes,
)
from lpsmap_core.engine.problem import ONE, Iterate, LoopProblem, Progress, problem_at
from lpsmap_core.engine.selection import (
    POLL_PERIOD,
    Selection,
    adopt_local_solutions,
    batch_length,
    keep_chosen,
    scatter_direct,
    select_components,
    solve_locally,
)
from lpsmap_core.engine.state import scale_additionals
from lpsmap_core.engine.step_size import balance_ratio, balanced_step_size
from lpsmap_core.layout.arrangement import Links
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.interrupts import interrupted, stopped
from lpsmap_jit.native import borrowed

__all__ = ["Limits", "loop"]

UNDERFLOW = 1e-290
"""Smaller means are set to zero: a mean that keeps shrinking would become subnormal, which is slow.
"""

TWO = np.uint64(2)


class Limits(NamedTuple):
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


@leaf
def loop(
    components: IntArray,
    batched: bool,
    solver_table: Any,
    problem_handle: Any,
    workspace_handle: Any,
    places: IntArray,
    limits: Limits,
    trace: FloatArray,
) -> None:
    """Run the loop on some components, one after the other or batched.

    The caller holds the records of the handles.
    """
    _run(
        components,
        batched,
        borrowed(solver_table),
        problem_at(problem_handle),
        loop_workspace_at(workspace_handle),
        borrowed(places),
        limits,
        borrowed(trace),
    )


@kernel
def _run(
    components: IntArray,
    batched: bool,
    solver_table: Any,
    problem: LoopProblem,
    workspace: LoopWorkspace,
    places: IntArray,
    limits: Limits,
    trace: FloatArray,
) -> None:
    """Run the loop like `loop`, with records passed by address."""
    links, spans, history = problem.links, problem.spans, make_history(0)
    if batched:
        chosen = np.zeros(len(problem.progress.step_size), dtype=np.bool_)
        for c in components:
            chosen[c] = True
        everything = select_components(spans, 0, len(chosen))
        selection = keep_chosen(everything, links, spans, chosen)
        _iterate(selection, solver_table, problem, workspace, history, places, limits, trace)
        return
    n_variables, i = 0, 0
    while i < len(components):
        first = components[i]
        last = first + batch_length(components, i, problem)
        i += last - first
        n_variables += spans.first_variable[last] - spans.first_variable[first]
        if n_variables > POLL_PERIOD:
            n_variables = 0
            if interrupted():
                break
        selection = select_components(spans, first, last)
        begin_history(first, problem, history)
        if not _iterate(
            selection, solver_table, problem, workspace, history, places, limits, trace
        ):
            break


@kernel
def _iterate(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    workspace: LoopWorkspace,
    history: History,
    places: IntArray,
    limits: Limits,
    trace: FloatArray,
) -> bool:
    """Iterate on a selection until every component has finished or `limits` are reached.

    Returns false if Python code raised or the loop was interrupted; local solutions may then be
    incomplete.
    """
    progress, polish = problem.progress, workspace.polish
    iteration, any_awaiting = progress.iterations[selection.components[0]], False
    if iteration == 0 and limits.adapt and not _begin(selection, problem, polish, places):
        return False
    while len(selection.components) > 0 and iteration < limits.stop:
        iteration += 1
        only, alone = selection.components[0], len(selection.components) == 1
        accelerated = alone and polish.allowed[only] and iteration >= history.phase[0]
        if accelerated:
            history = record_start(only, problem, history)
        _write_stale(selection, problem)
        if not solve_locally(selection, solver_table, problem, limits.max_inner_iter) or stopped():
            return False
        for c in selection.components:
            polish.selected[c] = False
            progress.iterations[c] = iteration
        probes = limits.adapt and (iteration % PERIOD == 0 or any_awaiting or iteration <= EARLY)
        if probes and not _polish(selection, solver_table, problem, workspace, places, limits.tol):
            return False
        _average(selection, problem, polish.selected, limits.relaxation)
        ratio = balance_ratio(iteration, problem.quadratic, accelerated) if limits.adapt else np.inf
        may_wait = limits.adapt and iteration + POLISH_ITERATIONS <= limits.last
        n_finished, any_awaiting = _judge(
            selection.components, progress, polish, limits, ratio, may_wait
        )
        if limits.adapt:
            revert_failed_polishes(selection, problem, polish)
        if len(trace) > 0:
            _write_trace(selection.components, progress, trace[iteration - 1])
        if n_finished == len(selection.components):
            break
        if interrupted():
            return False
        if accelerated and not any_awaiting:
            if not call_acceleration(places, only, problem, history):
                return False
            review_acceleration(only, iteration, problem, history)
        if n_finished > 0:
            selection = _drop_finished(selection, problem)
    return True


@kernel
def _drop_finished(selection: Selection, problem: LoopProblem) -> Selection:
    """Return the selection of the components that have not converged."""
    running = np.empty(len(problem.progress.converged), dtype=np.bool_)
    for c in selection.components:
        running[c] = not problem.progress.converged[c]
    return keep_chosen(selection, problem.links, problem.spans, running)


@leaf
def _polish(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    workspace: LoopWorkspace,
    places: IntArray,
    tol: float,
) -> bool:
    """Probe the faces that are due and polish the settled ones; false if Python code raised."""
    polish, progress = workspace.polish, problem.progress
    regular = progress.iterations[selection.components[0]] % PERIOD == 0
    if not find_due(selection, progress, polish, regular):
        return True
    return call_polish(places, selection, solver_table, problem, polish, workspace.work, tol)


@leaf
def _begin(selection: Selection, problem: LoopProblem, polish: Polish, places: IntArray) -> bool:
    """Prepare a Newton start for the components that have one; false if Python code raised."""
    if len(polish.numbers) > 0:
        draw_general_position(selection, problem, polish.numbers)
        if has_newton_start(selection, problem.counts):
            return call_start(places, selection, problem)
    return True


@leaf
def _write_trace(components: IntArray, progress: Progress, residuals: FloatArray) -> None:
    """Write the residuals of some components, the primal ones in the first row."""
    for c in components:
        residuals[0, c], residuals[1, c] = progress.primal_residual[c], progress.dual_residual[c]


@kernel
def _write_stale(selection: Selection, problem: LoopProblem) -> None:
    """Write the local scores of components whose iterate or step size has changed."""
    progress, n_stale = problem.progress, 0
    for c in selection.components:
        n_stale += progress.stale[c]
    if n_stale == 0:
        return
    chosen = keep_chosen(selection, problem.links, problem.spans, progress.stale)
    if problem.direct[chosen.components[0]]:
        scatter_direct(chosen, problem, problem.iterate.score, 1.0, problem.iterate.a)
    else:
        _write_local_scores(chosen, problem)
    for c in selection.components:
        progress.stale[c] = False


@leaf
def _write_local_scores(selection: Selection, problem: LoopProblem) -> None:
    """Write the local scores of components of several factors."""
    links, iterate, progress = problem.links, problem.iterate, problem.progress
    for v in selection.variables:
        g = progress.step_size[links.component[v]]
        base = iterate.score[v] + g * iterate.u[v]
        inverse = 1.0 / (problem.quadratic + g)
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            a = (base + iterate.duals[e]) * inverse
            iterate.a[links.order[e]] = 1.0 / links.root_degree[v] - a if links.negated[e] else a
    if len(problem.extras.eta) > 0:
        for b in range(len(selection.first)):
            scale_additionals(selection.rows[selection.first[b] : selection.last[b]], b, problem)


@leaf
def _average(
    selection: Selection, problem: LoopProblem, moved: BoolArray, relaxation: float
) -> None:
    """Average the copies of every variable, update the duals and write the next local scores.

    Skips components that the polish has `moved`: their local solutions belong to an older iterate.
    """
    links, iterate, progress = problem.links, problem.iterate, problem.progress
    begin = problem.spans.first_variable
    if problem.direct[selection.components[0]]:
        adopt_local_solutions(selection, problem)
        return
    for c in selection.components:
        if moved[c]:
            continue
        first, last = np.uint64(begin[c]), np.uint64(begin[c + 1])
        g = progress.step_size[c]
        inverse = 1.0 / (problem.quadratic + g)
        gap, change = _average_variables(first, last, links, iterate, g, relaxation, inverse)
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
    """Average the copies of some variables; see `_average`.

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
    """Average the copies of one variable, on the links lo to hi; see `_average`.

    Returns the largest disagreement of its copies, and the change of its marginal. The disagreement
    is infinite if a copy is NaN, which comparisons would not detect.
    """
    order, root_degree, negated = links.order, links.root_degree, links.negated
    u, duals, scores, z = iterate.u, iterate.duals, iterate.a, iterate.z
    total = 0.0
    for e in range(lo, hi):
        copy = z[order[e]]
        total += 1.0 / root_degree[v] - copy if negated[e] else copy
    mean, previous = total / float(hi - lo), u[v]
    relaxed = relax * mean + (1.0 - relax) * previous
    u[v] = relaxed if abs(relaxed) > UNDERFLOW else 0.0
    base, step, largest = iterate.score[v] + g * relaxed, relax * g, 0.0
    for e in range(lo, hi):
        link = order[e]
        copy = z[link]
        gap = mean - (1.0 / root_degree[v] - copy if negated[e] else copy)
        largest = max(largest, abs(gap))
        dual = duals[e] + step * gap
        duals[e] = dual
        a = (base + dual) * inverse
        scores[link] = 1.0 / root_degree[v] - a if negated[e] else a
    if not abs(mean) < np.inf:
        return np.inf, 0.0
    return root_degree[v] * largest, root_degree[v] * abs(mean - previous)


@leaf
def _judge(
    components: IntArray,
    progress: Progress,
    polish: Polish,
    limits: Limits,
    ratio: float,
    may_wait: bool,
) -> tuple[int, bool]:
    """Test convergence and balance step sizes; return the number of finished components.

    Also returns whether other converged components wait for a last polish.
    """
    n_finished, any_awaiting = 0, False
    for c in components:
        polish.awaits_last_polish[c] = False
        if polish.selected[c]:
            continue
        primal, dual = progress.primal_residual[c], progress.dual_residual[c]
        changed_little = dual <= max(limits.dual_tol, progress.rounding[c])
        if primal <= limits.tol and changed_little and not progress.unsolved[c]:
            if may_wait and needs_last_polish(c, progress, polish, limits.tol):
                polish.awaits_last_polish[c] = any_awaiting = True
            else:
                progress.converged[c] = True
                n_finished += 1
        elif ratio < np.inf:
            before = progress.step_size[c]
            first = progress.first_step_size[c]
            step_size = balanced_step_size(before, first, primal, dual, ratio)
            progress.step_size[c] = step_size
            progress.stale[c] |= step_size != before
    return n_finished, any_awaiting
