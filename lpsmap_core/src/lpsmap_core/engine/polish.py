"""The polish: the exact solution on the faces that the loop has identified.

If the faces are right, the solution is the projection of ``eta + C^T B eta_N`` onto the affine
space on which all faces agree. Conjugate gradients find it and its duals. The next iteration of the
loop tests the faces: it reproduces the polished point if they are right, and otherwise the loop
returns to its earlier iterate. A component is polished once its faces are the same in two
consecutive probes. A probe is one product of the local Jacobians with numbers in general position.

Every local solution is ``z = J a + B eta_N + c`` on its face, with ``B`` the Jacobian in the scores
of the additionals, and ``c`` orthogonal to the directions of the face. With the signs of the slots,
where the copies of mu are ``C mu + shift``::

    mu      = eta' - y,     (I - S) y = C^T (I - J) (C eta' + shift - c),   eta' = eta + C^T B eta_N
    e       = C mu + shift - c - J (C eta + lambda + shift) - B eta_N
    lambda += e - (I - J) C t,    (I - S) t = C^T e

With the new duals, which still sum to zero, the local solutions are the copies of mu.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.anderson import MAX_ACCELERATED_LINKS
from lpsmap_core.engine.faces import (
    FaceWorkspace,
    face_workspace_at,
    face_workspace_sizes,
    multiply,
    order_moving_first,
    plan_face_workspace,
    reduce_residual,
)
from lpsmap_core.engine.problem import ONE, LoopProblem, problem_at
from lpsmap_core.engine.selection import (
    Selection,
    Variables,
    gather_from_links,
    keep_chosen,
    multiply_jacobians,
    scatter_to_links,
)
from lpsmap_core.engine.state import PartState
from lpsmap_core.engine.stopping import EXACT_RESIDUAL, ITERATING, RESIDUAL_ROUNDING
from lpsmap_core.layout.arrangement import Links
from lpsmap_core.model.score_magnitude import largest_magnitude
from lpsmap_jit.arrays import BoolArray, FloatArray, FloatTable, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.compile import leaf
from lpsmap_jit.memory import Blueprint, Memory

PERIOD = 2
"""Iterations between two probes of the faces. At 5 instead of 3, settled faces were found two to
four iterations later."""

PROBE_BELOW = 0.05
"""Faces are probed once the marginals move by less than this in an iteration. Probes at larger
moves found no settled faces."""

WARM_PROBES = 2
"""Number of initial iterations that also probe the faces of components with a warm start."""

MAX_SCORE = 1e100
"""Components with larger scores, whose squares could overflow, are left to the plain loop."""

MAX_POLISHED_LINKS = 1_000_000
"""Largest component that is polished. In larger ones the faces do not all settle before the loop
has converged, and the polish would take half of the memory."""

ACCURACY = 1e-13
"""Norm of the residual of polished points: less than `EXACT_RESIDUAL`, and above the rounding of
conjugate gradients."""

COARSE = 1e-4
"""Larger tolerances ask for a quick result: components within them do not wait for a polish."""

MAX_EXTRA_ITERATIONS = 40
"""Maximum number of iterations within the tolerance that wait for a polish. If scores differ by
less than the tolerance, iterates come within it before their faces settle, and have the derivatives
of other faces. Faces settle as fast as at other scales."""

POLISHED = 1e-6
"""Largest residual that a polish on the right faces leaves, relative to the largest score."""

MAX_DOUBLINGS = 4
"""Maximum number of doublings of the pause after failures, to 32 iterations."""

FACE_TOLERANCE = 1e-3
"""A marginal that lies farther outside [0, 1] shows that the faces are wrong."""

MAX_POLISH_PRODUCTS = 100
"""Maximum number of products for each of the two systems; wrong faces can be badly conditioned."""

POLISH_ITERATIONS = 3
"""Iterations of a polish: the polish itself, the test of its faces and one after a reversal."""


class Polish(NamedTuple):
    """The workspace of a run of the loop, and the state of the polish for every component."""

    faces: FaceWorkspace
    allowed: BoolArray
    """Whether the component may be polished."""
    accelerated: BoolArray
    """Whether the component may be accelerated."""
    before: FloatArray
    """The larger residual before the polish."""
    tried: BoolArray
    """Whether the current faces were tried already."""
    selected: BoolArray
    """Whether the component is selected for the current step; at the end, whether it was moved."""
    pending: BoolArray
    """Whether the component was moved and its convergence is not tested yet."""
    worse: BoolArray
    """Whether the polish is reverted in this iteration."""
    failures: IntArray
    """Number of failed polishes."""
    postponed_until: IntArray
    """The iteration before which the component is not polished again."""
    within: IntArray
    """Number of iterations within the tolerance that waited for a polish."""
    numbers: FloatArray
    """Numbers in general position, one per link in the order of the factors."""
    rounds: IntArray
    """Number of rounds of probes, including those in which the component was not due."""
    probed_at: IntArray
    """Value of `rounds` at the latest probe; 0 without one."""
    probed: FloatTable
    """(2, links) products of the latest two probes, in alternating rows, in the order of the
    factors; the correction of the duals overwrites the earlier one."""
    offset: FloatArray
    """``shift - c``, one number per link in the order of the variables."""
    mu: FloatArray
    """Polished means."""
    t: FloatArray
    """``t`` of the system for the duals."""
    u: FloatArray
    """Means before the polish."""
    duals: FloatArray
    """Duals before the polish."""


polish_at = record_at(Polish)
"""Returns, in kernels, the record of a handle, by which `problem_at` finds the problem, too."""


def make_polish(state: PartState, polished: bool) -> Memory[Polish]:
    """Return the workspace of the loop; it covers variables and links only for the polish.

    It is one block of memory. The C library would return several blocks of this size to the system
    after every solve, and fresh pages take up to a third of the time of a solve.
    """
    part, sizes, work = state.part, (0, 0), (0, 0, 0, 0)
    allowed = accelerated = np.zeros(part.n_components, dtype=np.bool_)
    if polished:
        small = state.problem.progress.largest_score < MAX_SCORE
        allowed = ~part.direct & (part.sizes <= MAX_POLISHED_LINKS) & small
        accelerated = allowed & (part.sizes <= MAX_ACCELERATED_LINKS)
    if allowed.any():
        sizes, work = (part.n_variables, part.n_links), face_workspace_sizes(part)
    given = state.memory, np.empty(work[1]), allowed, accelerated
    return _blueprint(*sizes, part.n_components, work).make(*given)


@functools.lru_cache(maxsize=32)
def _blueprint(
    on_variables: int, on_links: int, on_components: int, work: tuple[int, int, int, int]
) -> Blueprint[Polish]:
    plan: dict[str, Any] = {"faces": plan_face_workspace(*work), "probed": (2, on_links)}
    plan |= dict.fromkeys(("allowed", "accelerated"))
    plan |= dict.fromkeys(("numbers", "offset", "duals"), (on_links,))
    plan |= dict.fromkeys(("mu", "t", "u"), (on_variables,))
    return Blueprint(Polish, [plan.get(name, (on_components,)) for name in Polish._fields])


@leaf
def find_due(components: IntArray, handle: Any, regular: bool) -> bool:
    """Select the components whose faces are due for a probe; return whether there are any.

    Outside of `regular` iterations, only components with a warm start are due.
    """
    progress, polish, n_due = problem_at(handle).progress, polish_at(handle), 0
    for c in components:
        calm = regular and progress.dual_residual[c] <= PROBE_BELOW * progress.step_size[c]
        due = (calm or progress.warm[c]) and progress.iterations[c] >= polish.postponed_until[c]
        polish.selected[c] = polish.allowed[c] and due and not progress.at_inner_limit[c]
        n_due += polish.selected[c]
        polish.rounds[c] += 1
    return n_due > 0


def polish_settled(state: PartState, selection: Selection, workspace: Memory[Polish]) -> None:
    """Move the selected components whose faces have settled.

    Afterwards ``polish.selected`` marks the components that moved, and their local scores are
    stale.
    """
    part, handle, polish = state.part, workspace.handle, workspace.record
    probed = keep_chosen(selection, part, polish.selected)
    turn = int(polish.rounds[probed.components[0]])
    latest, before = polish.probed[turn % 2], polish.probed[1 - turn % 2]
    work = polish.faces
    multiply_jacobians(state, probed, polish.numbers, work.no_v, latest, work.outputs_v)
    if not _find_settled(*probed[:2], handle, turn, latest, before):
        return
    settled = keep_chosen(probed, part, polish.selected)
    polish.before[settled.components] = np.maximum(
        state.problem.progress.primal_residual[settled.components],
        state.problem.progress.dual_residual[settled.components],
    )
    moving = order_moving_first(state, settled, latest, work)
    _find_mu(state, settled, moving, workspace)
    plausible = keep_chosen(settled, part, polish.selected)
    if plausible is not settled:
        moving = order_moving_first(state, plausible, latest, work)
    _find_duals(state, plausible, moving, workspace, before)
    _postpone_failures(settled.components, handle)
    _move(*plausible[:2], handle, before)


@leaf
def waits_for_polish(c: int, handle: Any, tol: float) -> bool:
    """Return whether a component within the tolerance goes on until it is polished; count it.

    A polish on the right faces leaves residuals that are rounding, or small beside the scores.
    """
    problem, polish = problem_at(handle), polish_at(handle)
    progress, first = problem.progress, problem.spans.first_variable
    primal, dual = progress.primal_residual[c], progress.dual_residual[c]
    done = primal <= EXACT_RESIDUAL and dual <= EXACT_RESIDUAL * progress.largest_score[c]
    if polish.pending[c] and not done:
        largest = largest_magnitude(problem.iterate.eta[first[c] : first[c + 1]])
        done = max(primal, dual) <= POLISHED * largest
    waits = polish.allowed[c] and tol <= COARSE and not done
    waits = waits and polish.within[c] < MAX_EXTRA_ITERATIONS
    polish.within[c] += waits
    return waits


@leaf
def _postpone(c: int, iteration: int, polish: Polish) -> None:
    """Postpone the next polish of a component, for longer after every failure.

    Otherwise a loop that cycles through wrong faces would be interrupted at each of them.
    """
    pause = PERIOD * 2 ** min(polish.failures[c], MAX_DOUBLINGS)
    polish.postponed_until[c] = iteration + pause
    polish.failures[c] += 1


@leaf
def _postpone_failures(components: IntArray, handle: Any) -> None:
    """Postpone the next polish of components that are no longer selected."""
    iterations, polish = problem_at(handle).progress.iterations, polish_at(handle)
    for c in components:
        if not polish.selected[c]:
            _postpone(c, iterations[c], polish)


@leaf
def revert_failed_polishes(components: IntArray, variables: Variables, handle: Any) -> None:
    """Revert polishes that did not halve the residuals; the local scores become stale."""
    problem, polish, any_worse = problem_at(handle), polish_at(handle), False
    progress = problem.progress
    for c in components:
        polish.worse[c] = False
        if polish.pending[c] and not polish.selected[c]:
            polish.pending[c] = False
            reached = max(progress.primal_residual[c], progress.dual_residual[c])
            if progress.outcome[c] == ITERATING and not reached <= 0.5 * polish.before[c]:
                progress.primal_residual[c] = progress.dual_residual[c] = polish.before[c]
                polish.worse[c] = progress.stale[c] = any_worse = True
                _postpone(c, progress.iterations[c], polish)
    if any_worse:
        _restore(variables, problem, polish)


@leaf
def revert_untested_polishes(components: IntArray, variables: Variables, handle: Any) -> None:
    """Revert polishes whose test was interrupted: the products of the move may be partial."""
    problem, polish = problem_at(handle), polish_at(handle)
    for c in components:
        polish.worse[c] = polish.pending[c]
        problem.progress.stale[c] |= polish.worse[c]
        polish.pending[c] = polish.selected[c] = False
    _restore(variables, problem, polish)


@leaf
def _restore(variables: Variables, problem: LoopProblem, polish: Polish) -> None:
    """Set the means and duals of components that became worse to those before the polish."""
    links, iterate = problem.links, problem.iterate
    for v in variables:
        if polish.worse[links.component[v]]:
            iterate.u[v] = polish.u[v]
            for e in range(links.offsets[v], links.offsets[v + ONE]):
                iterate.duals[e] = polish.duals[e]


@leaf
def _find_settled(
    components: IntArray,
    variables: Variables,
    handle: Any,
    now: int,
    latest: FloatArray,
    before: FloatArray,
) -> bool:
    """Keep components selected if the last probe found the same faces, and these were not tried."""
    links, polish = problem_at(handle).links, polish_at(handle)
    selected = polish.selected
    for c in components:
        selected[c] = 0 < polish.probed_at[c] == now - 1
        polish.tried[c] &= selected[c]
        polish.probed_at[c] = now
    for v in variables:
        c = links.component[v]
        if not selected[c]:
            continue
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            selected[c] &= latest[links.order[e]] == before[links.order[e]]
        polish.tried[c] &= selected[c]
    any_settled = False
    for c in components:
        selected[c] &= not polish.tried[c]
        polish.tried[c] |= selected[c]
        any_settled |= selected[c]
    return any_settled


def _find_mu(
    state: PartState,
    selection: Selection,
    moving: tuple[Variables, Variables],
    workspace: Memory[Polish],
) -> None:
    """Write ``shift - c`` and the means mu; the components that succeed stay selected.

    Components whose faces prove to be wrong need neither duals nor a reversal.
    """
    (components, variables, _), handle = selection, workspace.handle
    extras, work, mu = state.problem.extras, workspace.record.faces, workspace.record.mu
    # shift - c, with c = z - J a - B eta_N / (q + gamma)
    local_scores = state.problem.iterate.a, extras.scaled
    multiply_jacobians(state, selection, *local_scores, work.outputs, work.outputs_v)
    _write_offset(variables, handle)
    if len(extras.eta):  # eta' = eta + C^T B eta_N
        multiply(state, selection, work, extras.eta)
        gather_from_links(variables, handle, work.outputs, work.image)
        mu[variables.view(np.int64)] += work.image[variables.view(np.int64)]
    # mu = eta' - y with (I - S) y = C^T (I - J) (C eta' + shift - c)
    _set_targets(components, variables, handle)
    multiply(state, selection, work)
    _write_residual(variables, handle)
    reduce_residual(state, selection, *moving, work, handle, mu, MAX_POLISH_PRODUCTS)
    _check_mu(components, variables, handle)


@leaf
def _write_offset(variables: Variables, handle: Any) -> None:
    """Write ``shift - c`` from the products with the local scores, and eta; clear the inputs."""
    problem, polish, work = problem_at(handle), polish_at(handle), face_workspace_at(handle)
    links, iterate = problem.links, problem.iterate
    for v in variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            polish.offset[e] = _shift(v, e, links) - iterate.z[link] + work.outputs[link]
            work.inputs[link] = 0.0
        polish.mu[v] = iterate.eta[v]


@leaf
def _write_residual(variables: Variables, handle: Any) -> None:
    """Write the residual ``C^T (inputs - outputs)``."""
    links, work = problem_at(handle).links, face_workspace_at(handle)
    for v in variables:
        total = 0.0
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            total += _sign(e, links) * (work.inputs[link] - work.outputs[link])
        work.residual[v] = total / links.root_degree[v]


@leaf
def _check_mu(components: IntArray, variables: Variables, handle: Any) -> None:
    """Keep the components selected whose means are found and lie in [0, 1]."""
    component, polish = problem_at(handle).links.component, polish_at(handle)
    for c in components:
        polish.selected[c] = not polish.faces.running[c]
    for v in variables:
        inside = -FACE_TOLERANCE <= polish.mu[v] <= 1.0 + FACE_TOLERANCE
        polish.selected[component[v]] &= inside


@leaf
def _sign(e: int, links: Links) -> float:
    return -1.0 if links.negated[e] else 1.0


@leaf
def _shift(v: int, e: int, links: Links) -> float:
    return 1.0 / links.root_degree[v] if links.negated[e] else 0.0


@leaf
def _set_targets(components: IntArray, variables: Variables, handle: Any) -> None:
    """Write the squared target residuals: `ACCURACY`, but at least the rounding of the scores.

    Scores of variables and of additionals can cancel in mu; their rounding does not. Also writes
    the inputs ``C mu + shift - c``.
    """
    problem, polish, work = problem_at(handle), polish_at(handle), face_workspace_at(handle)
    links, mu = problem.links, polish.mu
    for c in components:
        work.target[c] = 0.0
    for v in variables:
        work.target[links.component[v]] += mu[v] * mu[v]
        copy = mu[v] / links.root_degree[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            work.inputs[links.order[e]] = _sign(e, links) * copy + polish.offset[e]
    for c in components:
        rounding = RESIDUAL_ROUNDING * problem.progress.largest_score[c]
        score_rounding = max(rounding * rounding, 1e-28 * work.target[c])
        work.target[c] = max(ACCURACY * ACCURACY, score_rounding)


def _find_duals(
    state: PartState,
    selection: Selection,
    moving: tuple[Variables, Variables],
    workspace: Memory[Polish],
    error: FloatArray,
) -> None:
    """Write the correction of the duals, in local signs, to `error`."""
    (components, variables, _), handle = selection, workspace.handle
    work, t = workspace.record.faces, workspace.record.t
    if not len(components):
        return
    # e = C mu + shift - c - J (C eta + lambda + shift) - B eta_N
    _write_scores_with_duals(variables, handle)
    multiply(state, selection, work, state.problem.extras.eta)
    # (I - S) t = C^T e, then e - (I - J) C t
    _write_error(variables, handle, error)
    reduce_residual(state, selection, *moving, work, handle, t, MAX_POLISH_PRODUCTS)
    scatter_to_links(variables, handle, t, work.inputs)
    multiply(state, selection, work)
    _correct_error(components, variables, handle, error)


@leaf
def _write_scores_with_duals(variables: Variables, handle: Any) -> None:
    """Write the inputs ``C eta + lambda + shift``."""
    problem, work = problem_at(handle), face_workspace_at(handle)
    links, iterate = problem.links, problem.iterate
    for v in variables:
        copy = iterate.eta[v] / links.root_degree[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            score = _sign(e, links) * (copy + iterate.duals[e])
            work.inputs[links.order[e]] = score + _shift(v, e, links)


@leaf
def _write_error(variables: Variables, handle: Any, error: FloatArray) -> None:
    """Write e, the residual ``-C^T e`` and a t of zero."""
    links, polish, work = problem_at(handle).links, polish_at(handle), face_workspace_at(handle)
    for v in variables:
        polish.t[v] = total = 0.0
        copy = polish.mu[v] / links.root_degree[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            error[link] = _sign(e, links) * copy + polish.offset[e] - work.outputs[link]
            total -= _sign(e, links) * error[link]
        work.residual[v] = total / links.root_degree[v]


@leaf
def _correct_error(
    components: IntArray, variables: Variables, handle: Any, error: FloatArray
) -> None:
    """Subtract ``(I - J) C t`` from e; keep the components selected that have a finite result."""
    links, polish, work = problem_at(handle).links, polish_at(handle), face_workspace_at(handle)
    for c in components:
        polish.selected[c] = polish.selected[c] and not work.running[c]
    for v in variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            error[link] += work.outputs[link] - work.inputs[link]
            polish.selected[links.component[v]] &= abs(error[link]) < np.inf


@leaf
def _move(components: IntArray, variables: Variables, handle: Any, error: FloatArray) -> None:
    """Set the means and duals of the components that succeeded, and save the old ones."""
    problem, polish = problem_at(handle), polish_at(handle)
    links, iterate = problem.links, problem.iterate
    for c in components:
        polish.pending[c] = polish.selected[c]
        problem.progress.stale[c] |= polish.selected[c]
    for v in variables:
        if not polish.selected[links.component[v]]:
            continue
        lo, hi = links.offsets[v], links.offsets[v + ONE]
        polish.u[v] = iterate.u[v]
        iterate.u[v] = polish.mu[v] / links.root_degree[v]
        total = 0.0
        for e in range(lo, hi):
            polish.duals[e] = iterate.duals[e]
            iterate.duals[e] += _sign(e, links) * error[links.order[e]]
            total += iterate.duals[e]
        # a remainder of the sum, from conjugate gradients, would change the scores
        for e in range(lo, hi):
            iterate.duals[e] -= total / float(hi - lo)
