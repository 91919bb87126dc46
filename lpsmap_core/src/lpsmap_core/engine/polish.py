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

from lpsmap_core.engine.faces import (
    FaceWorkspace,
    face_workspace_sizes,
    order_moving_first,
    plan_face_workspace,
    reduce_residual,
)
from lpsmap_core.engine.problem import ONE, LoopProblem, Progress
from lpsmap_core.engine.scores import RESIDUAL_ROUNDING
from lpsmap_core.engine.selection import (
    Selection,
    gather_from_links,
    keep_chosen,
    multiply_locally,
    scatter_to_links,
)
from lpsmap_core.engine.state import PartState
from lpsmap_core.layout.arrangement import Links
from lpsmap_jit.arrays import BoolArray, FloatArray, FloatTable, IntArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.memory import Blueprint, Memory

__all__ = [
    "EARLY",
    "MOST_POLISHED_LINKS",
    "PERIOD",
    "POLISH_ITERATIONS",
    "LoopWorkspace",
    "Polish",
    "find_due",
    "loop_workspace_at",
    "make_loop_workspace",
    "needs_last_polish",
    "polish_settled",
    "revert_failed_polishes",
]

PERIOD = 2
"""Iterations between two probes of the faces. At 5 instead of 3, settled faces were found two to
four iterations later."""

CALM = 0.05
"""Faces are probed once the marginals move by less than this in an iteration. Probes at larger
moves found no settled faces."""

EARLY = 2
"""Number of initial iterations that also probe the faces of components with a warm start."""

LARGEST_SCORE = 1e100
"""Components with larger scores, whose squares could overflow, are left to the plain loop."""

MOST_POLISHED_LINKS = 1_000_000
"""Largest component that is polished. In larger ones the faces do not all settle before the loop
has converged, and the polish would take half of the memory."""

ACCURACY = 0.01
"""Accuracy of polished points relative to the tolerance of the loop."""

ROUGH = 0.05
"""A successful polish leaves smaller residuals than this, relative to the tolerance."""

COARSE = 1e-4
"""Larger tolerances ask for a quick result: components that have converged are not polished."""

MOST_LAST_TRIES = 3
"""Limit of the polishes of a component that has converged."""

MOST_DOUBLINGS = 4
"""Limit of the doublings of the pause after failures, to 32 iterations."""

FACE_TOLERANCE = 1e-3
"""A marginal that lies farther outside [0, 1] shows that the faces are wrong."""

MAX_POLISH_PRODUCTS = 100
"""Limit of products for each of the two systems; wrong faces can be badly conditioned."""

POLISH_ITERATIONS = 3
"""Iterations of a polish: the polish itself, the test of its faces and one after a reversal."""


class Polish(NamedTuple):
    """State of the polish for every component, and the iterate before it."""

    allowed: BoolArray
    """Whether the component may be polished."""
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
    last_tries: IntArray
    """Number of polishes of the component after it converged."""
    awaits_last_polish: BoolArray
    """Whether the component has converged and waits for a last polish."""
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


class LoopWorkspace(NamedTuple):
    """Workspace of one run of the loop."""

    polish: Polish
    work: FaceWorkspace


loop_workspace_at = record_at(LoopWorkspace)
"""Returns, in kernels, the workspace of a handle."""


def make_loop_workspace(state: PartState, polished: bool) -> Memory[LoopWorkspace]:
    """Return the workspace of the loop; it covers variables and links only for the polish.

    It is one block of memory. The C library would return several blocks of this size to the system
    after every solve, and fresh pages take a tenth of the time of a solve.
    """
    part, work = state.part, (0, 0, 0, 0)
    allowed = np.zeros(part.n_components, dtype=np.bool_)
    if polished:
        small = state.problem.progress.rounding < RESIDUAL_ROUNDING * LARGEST_SCORE
        allowed = ~part.direct & (part.sizes <= MOST_POLISHED_LINKS) & small
        work = face_workspace_sizes(part)
    sizes = (part.n_variables, part.n_links) if allowed.any() else (0, 0)
    return _blueprint(*sizes, part.n_components, work).make(allowed, np.empty(work[1]))


@functools.lru_cache(maxsize=32)
def _blueprint(
    on_variables: int, on_links: int, on_components: int, work: tuple[int, int, int, int]
) -> Blueprint[LoopWorkspace]:
    """Return the blueprint of workspaces of some sizes."""
    links = dict.fromkeys(("numbers", "offset", "duals"), (on_links,))
    variables = dict.fromkeys(("mu", "t", "u"), (on_variables,))
    plan = {"allowed": None, "probed": (2, on_links), **links, **variables}
    polish = [plan.get(name, (on_components,)) for name in Polish._fields]
    return Blueprint(LoopWorkspace, [polish, plan_face_workspace(*work)])


@leaf
def find_due(selection: Selection, progress: Progress, polish: Polish, regular: bool) -> bool:
    """Select the components whose faces are due for a probe; return whether there are any.

    Outside of `regular` iterations, only components with a warm start and components that wait for
    a last polish are due.
    """
    selected, n_due = polish.selected, 0
    for c in selection.components:
        calm = regular and progress.dual_residual[c] <= CALM * progress.step_size[c]
        due = (calm or progress.warm[c]) and progress.iterations[c] >= polish.postponed_until[c]
        due |= polish.awaits_last_polish[c]
        selected[c] = polish.allowed[c] and due and not progress.unsolved[c]
        n_due += selected[c]
        polish.rounds[c] += 1
    return n_due > 0


@kernel
def polish_settled(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    polish: Polish,
    work: FaceWorkspace,
    tol: float,
) -> None:
    """Move the selected components whose faces have settled.

    Afterwards ``polish.selected`` marks the components that moved, and their local scores are
    stale.
    """
    links, spans, progress = problem.links, problem.spans, problem.progress
    selected = polish.selected
    probed = keep_chosen(selection, links, spans, selected)
    turn = polish.rounds[probed.components[0]] % 2
    products, error = polish.probed[turn], polish.probed[1 - turn]
    if not _find_settled(probed, solver_table, problem, polish, work):
        return
    settled = keep_chosen(probed, links, spans, selected)
    for c in settled.components:
        polish.before[c] = max(progress.primal_residual[c], progress.dual_residual[c])
    n_moving = order_moving_first(settled, links, products, work)
    _find_mu(settled, n_moving, solver_table, problem, polish, work, tol)
    plausible = keep_chosen(settled, links, spans, selected)
    if len(plausible.components) < len(settled.components):
        n_moving = order_moving_first(plausible, links, products, work)
    _find_duals(plausible, n_moving, solver_table, problem, polish, work, error)
    for c in settled.components:
        if not selected[c]:
            _postpone(c, progress.iterations[c], polish)
    _move(plausible, problem, polish, error)


@leaf
def needs_last_polish(c: int, progress: Progress, polish: Polish, tol: float) -> bool:
    """Return whether a component that converged to `tol` needs a last polish; count the polish.

    It is tried a few times, also on faces that have not settled. After many iterations this costs
    little, and a polish that succeeds is exact.
    """
    reached = max(progress.primal_residual[c], progress.dual_residual[c])
    wants = polish.allowed[c] and reached > ROUGH * tol and tol <= COARSE
    wants = wants and polish.last_tries[c] < MOST_LAST_TRIES
    polish.last_tries[c] += wants
    return wants


@leaf
def _postpone(c: int, iteration: int, polish: Polish) -> None:
    """Postpone the next polish of a component, for longer after every failure.

    Otherwise a loop that cycles through wrong faces would be interrupted at each of them.
    """
    polish.postponed_until[c] = iteration + PERIOD * 2 ** min(polish.failures[c], MOST_DOUBLINGS)
    polish.failures[c] += 1


@leaf
def revert_failed_polishes(selection: Selection, problem: LoopProblem, polish: Polish) -> None:
    """Revert polishes that did not halve the residuals; the local scores become stale."""
    links, iterate, progress = problem.links, problem.iterate, problem.progress
    any_worse = False
    for c in selection.components:
        polish.worse[c] = False
        if polish.pending[c] and not polish.selected[c]:
            polish.pending[c] = False
            reached = max(progress.primal_residual[c], progress.dual_residual[c])
            if not progress.converged[c] and not reached <= 0.5 * polish.before[c]:
                progress.primal_residual[c] = progress.dual_residual[c] = polish.before[c]
                polish.worse[c] = progress.stale[c] = any_worse = True
                _postpone(c, progress.iterations[c], polish)
    if not any_worse:
        return
    for v in selection.variables:
        if polish.worse[links.component[v]]:
            iterate.u[v] = polish.u[v]
            for e in range(links.offsets[v], links.offsets[v + ONE]):
                iterate.duals[e] = polish.duals[e]


@leaf
def _find_settled(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    polish: Polish,
    work: FaceWorkspace,
) -> bool:
    """Keep components selected if the last probe found the same faces, and these were not tried."""
    links, selected, now = problem.links, polish.selected, polish.rounds[selection.components[0]]
    latest, before = polish.probed[now % 2], polish.probed[1 - now % 2]
    multiply_locally(
        selection, solver_table, problem.spans, polish.numbers, work.no_v, latest, work.outputs_v
    )
    for c in selection.components:
        selected[c] = 0 < polish.probed_at[c] == now - 1
        polish.tried[c] &= selected[c]
        polish.probed_at[c] = now
    for v in selection.variables:
        c = links.component[v]
        if not selected[c]:
            continue
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            selected[c] &= latest[links.order[e]] == before[links.order[e]]
        polish.tried[c] &= selected[c]
    any_settled = False
    for c in selection.components:
        selected[c] = (selected[c] or polish.awaits_last_polish[c]) and not polish.tried[c]
        polish.tried[c] |= selected[c]
        any_settled |= selected[c]
    return any_settled


@leaf
def _find_mu(
    selection: Selection,
    n_moving: int,
    solver_table: Any,
    problem: LoopProblem,
    polish: Polish,
    work: FaceWorkspace,
    tol: float,
) -> None:
    """Write ``shift - c`` and the means mu; the components that succeed stay selected.

    Components whose faces prove to be wrong need neither duals nor a reversal.
    """
    links, spans, iterate, extras = problem.links, problem.spans, problem.iterate, problem.extras
    inputs, outputs, offset, mu = work.inputs, work.outputs, polish.offset, polish.mu
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            inputs[links.order[e]] = iterate.a[links.order[e]]
    multiply_locally(selection, solver_table, spans, inputs, extras.scaled, outputs, work.outputs_v)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            offset[e] = _shift(v, e, links) - iterate.z[link] + outputs[link]
            inputs[link] = 0.0
        mu[v] = iterate.eta[v]
    if len(extras.eta) > 0:
        multiply_locally(
            selection, solver_table, spans, inputs, extras.eta, outputs, work.outputs_v
        )
        gather_from_links(selection, links, outputs, work.image)
        for v in selection.variables:
            mu[v] += work.image[v]
    _set_targets(selection, problem, mu, work, ACCURACY * tol)
    scatter_to_links(selection, links, mu, inputs)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            inputs[links.order[e]] += offset[e]
    multiply_locally(selection, solver_table, spans, inputs, work.no_v, outputs, work.outputs_v)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            outputs[links.order[e]] = inputs[links.order[e]] - outputs[links.order[e]]
    gather_from_links(selection, links, outputs, work.residual)
    reduce_residual(selection, n_moving, solver_table, problem, work, mu, MAX_POLISH_PRODUCTS)
    for c in selection.components:
        polish.selected[c] = not work.running[c]
    for v in selection.variables:
        polish.selected[links.component[v]] &= -FACE_TOLERANCE <= mu[v] <= 1.0 + FACE_TOLERANCE


@leaf
def _sign(e: int, links: Links) -> float:
    return -1.0 if links.negated[e] else 1.0


@leaf
def _shift(v: int, e: int, links: Links) -> float:
    return 1.0 / links.root_degree[v] if links.negated[e] else 0.0


@leaf
def _set_targets(
    selection: Selection, problem: LoopProblem, mu: FloatArray, work: FaceWorkspace, accuracy: float
) -> None:
    """Write the squared target residuals: an accuracy, but at least the rounding of the scores.

    Scores of variables and of additionals can cancel in `mu`; their rounding does not.
    """
    component, rounding = problem.links.component, problem.progress.rounding
    for c in selection.components:
        work.target[c] = 0.0
    for v in selection.variables:
        work.target[component[v]] += mu[v] * mu[v]
    for c in selection.components:
        score_rounding = max(rounding[c] * rounding[c], 1e-28 * work.target[c])
        work.target[c] = max(accuracy * accuracy, score_rounding)


@leaf
def _find_duals(
    selection: Selection,
    n_moving: int,
    solver_table: Any,
    problem: LoopProblem,
    polish: Polish,
    work: FaceWorkspace,
    error: FloatArray,
) -> None:
    """Write the correction of the duals, in local signs, to `error`."""
    links, spans, iterate, extras = problem.links, problem.spans, problem.iterate, problem.extras
    inputs, outputs = work.inputs, work.outputs
    scatter_to_links(selection, links, iterate.eta, inputs)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            inputs[links.order[e]] += _sign(e, links) * iterate.duals[e] + _shift(v, e, links)
    multiply_locally(selection, solver_table, spans, inputs, extras.eta, outputs, work.outputs_v)
    for v in selection.variables:
        polish.t[v] = 0.0
        copy = polish.mu[v] / links.root_degree[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            error[link] = _sign(e, links) * copy + polish.offset[e] - outputs[link]
            outputs[link] = -error[link]
    gather_from_links(selection, links, outputs, work.residual)
    reduce_residual(selection, n_moving, solver_table, problem, work, polish.t, MAX_POLISH_PRODUCTS)
    for c in selection.components:
        polish.selected[c] = polish.selected[c] and not work.running[c]
    scatter_to_links(selection, links, polish.t, inputs)
    multiply_locally(selection, solver_table, spans, inputs, work.no_v, outputs, work.outputs_v)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            error[link] += outputs[link] - inputs[link]
            polish.selected[links.component[v]] &= abs(error[link]) < np.inf


@leaf
def _move(selection: Selection, problem: LoopProblem, polish: Polish, error: FloatArray) -> None:
    """Set the means and duals of the components that succeeded, and save the old ones."""
    links, iterate = problem.links, problem.iterate
    for c in selection.components:
        polish.pending[c] = polish.selected[c]
        problem.progress.stale[c] |= polish.selected[c]
    for v in selection.variables:
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
