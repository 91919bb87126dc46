"""The polish: the exact solution on the faces that the loop has identified.

If the faces are right, the solution is the projection of ``eta + C^T B eta_N`` onto the affine
space on which all faces agree; conjugate gradients find it, and duals that belong to it. Whether
the faces are right is for the loop to say: its next iteration reproduces the polished point if they
are, and otherwise the loop goes back to where it was. A component is polished once its faces have
stayed the same from one probe to the next; a probe is one product of the local Jacobians with
numbers in general position.

With every local solution written as ``z = J a + B eta_N + c`` on its face (``c`` orthogonal to the
face's directions), in local signs, where the copies of mu are ``C mu + shift``::

    mu      = eta' - y,     (I - S) y = C^T (I - J) (C eta' + shift - c),   eta' = eta + C^T B eta_N
    e       = C mu + shift - c - J (C eta + lambda + shift) - B eta_N
    lambda += e - (I - J) C t,    (I - S) t = C^T e

so that ``J`` reproduces the copies of mu from the new duals, which still sum to zero.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.faces import (
    Work,
    order_moving_first,
    plan_work,
    reduce_residual,
    work_sizes,
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
    "MOST_LINKS",
    "PERIOD",
    "WHOLE_TRY",
    "Polish",
    "Tools",
    "find_due",
    "make_tools",
    "polish_settled",
    "take_back_polish",
    "tools_at",
    "wants_polish",
]

PERIOD = 2
"""Iterations between two probes of the faces."""

CALM = 0.05
"""Faces are probed once the marginals move by less than this in an iteration."""

EARLY = 2
"""First iterations in which the faces are probed, too, if they may be those of an earlier solution.
"""

LARGEST_SCORE = 1e100
"""Scores whose squares overflow are left to the plain loop."""

MOST_LINKS = 1_000_000
"""Of larger components the faces do not settle all at once before the loop has converged, and the
polish takes half of the memory."""

ACCURACY = 0.01
"""Polished points are as accurate as this, in units of the loop's tolerance."""

ROUGH = 0.05
"""Residuals above this, in units of the tolerance, are those of no polish that succeeded."""

COARSE = 1e-4
"""Tolerances above this ask for a quick answer, which is not polished before it is given."""

MOST_LAST_TRIES = 3
"""Polishes of a component that the loop has brought to the tolerance."""

MOST_DOUBLINGS = 4
"""Limit of the rests after failures: 32 iterations."""

OUTSIDE = 1e-3
"""A marginal farther outside [0, 1] than this shows that the faces are wrong."""

MAX_PRODUCTS = 100
"""Limit of products in each of the two systems; wrong faces can be badly conditioned."""

WHOLE_TRY = 3
"""Iterations that a polish takes, with the one that judges it and the one after it was put back."""


class Polish(NamedTuple):
    """What the polish knows of every component, and where the loop was before."""

    allowed: BoolArray
    before: FloatArray
    """The larger residual before the polish."""
    tried: BoolArray
    """Whether these faces were tried already."""
    now: BoolArray
    """Components being looked at; after `polish_settled`, those that it moved."""
    pending: BoolArray
    """Moved, and not yet seen to converge."""
    worse: BoolArray
    """Put back in this iteration."""
    failures: IntArray
    """How often it did not help, and the iteration before which it is not tried again."""
    rests_until: IntArray
    last_tries: IntArray
    """How often a component that agreed to the tolerance was to be polished before it is done."""
    waits: BoolArray
    """Whether it agreed in the last iteration, and waits for that."""
    numbers: FloatArray
    """Numbers in general position on the links."""
    looks: IntArray
    """How often it was time to probe a component, and which time it was done last; 0 if never."""
    probed_at: IntArray
    probed: FloatTable
    """(2, links) products of the latest two probes, which take turns; the earlier ones have served
    when the duals' correction takes their place."""
    offset: FloatArray
    """``shift - c`` on the links."""
    mu: FloatArray
    t: FloatArray
    u: FloatArray
    """The iterate before the polish."""
    duals: FloatArray


class Tools(NamedTuple):
    """What the loop works with beside the problem, until it ends."""

    polish: Polish
    work: Work


tools_at = record_at(Tools)
"""Returns, in kernels, the memory of a handle."""


def make_tools(state: PartState, polished: bool) -> Memory[Tools]:
    """Return memory for the loop, on variables and links only if some components are polished.

    One block for all of it: the C library gives several of this size back to the system after
    every solve, and the pages of new ones take a tenth of the time of a solve.
    """
    part, work = state.part, (0, 0, 0, 0)
    allowed = np.zeros(part.n_components, dtype=np.bool_)
    if polished:
        small = state.problem.progress.rounding < RESIDUAL_ROUNDING * LARGEST_SCORE
        allowed, work = ~part.direct & (part.sizes <= MOST_LINKS) & small, work_sizes(part)
    sizes = (part.n_variables, part.n_links) if allowed.any() else (0, 0)
    return _blueprint(*sizes, part.n_components, work).make(allowed, np.empty(work[1]))


@functools.lru_cache(maxsize=32)
def _blueprint(
    on_variables: int, on_links: int, on_components: int, work: tuple[int, int, int, int]
) -> Blueprint[Tools]:
    """Return how the memory of some sizes is made."""
    links = dict.fromkeys(("numbers", "offset", "duals"), (on_links,))
    variables = dict.fromkeys(("mu", "t", "u"), (on_variables,))
    plan = {"allowed": None, "probed": (2, on_links), **links, **variables}
    polish = [plan.get(name, (on_components,)) for name in Polish._fields]
    return Blueprint(Tools, [polish, plan_work(*work)])


@leaf
def find_due(selection: Selection, progress: Progress, polish: Polish, regular: bool) -> bool:
    """Mark in ``polish.now`` the components whose faces are to be probed; return if there are any.

    Where it is not a `regular` time to look, only components that started from an earlier solution
    are looked at, and those that would be done without.
    """
    now, n_due = polish.now, 0
    for c in selection.components:
        calm = regular and progress.dual_residual[c] <= CALM * progress.step_size[c]
        due = (calm or progress.warm[c]) and progress.iterations[c] >= polish.rests_until[c]
        due |= polish.waits[c]
        now[c] = polish.allowed[c] and due and not progress.unsolved[c]
        n_due += now[c]
        polish.looks[c] += 1
    return n_due > 0


@kernel
def polish_settled(
    selection: Selection,
    solver_table: Any,
    problem: LoopProblem,
    polish: Polish,
    work: Work,
    tol: float,
) -> None:
    """Move the components whose faces have settled, of those that are marked in ``polish.now``.

    Afterwards that says which did, and their local scores are stale.
    """
    links, blocks, progress, now = problem.links, problem.blocks, problem.progress, polish.now
    probed = keep_chosen(selection, links, blocks, now)
    turn = polish.looks[probed.components[0]] % 2
    products, error = polish.probed[turn], polish.probed[1 - turn]
    if not _find_settled(probed, solver_table, problem, polish, work):
        return
    settled = keep_chosen(probed, links, blocks, now)
    for c in settled.components:
        polish.before[c] = max(progress.primal_residual[c], progress.dual_residual[c])
    n_moving = order_moving_first(settled, links, products, work)
    _find_mu(settled, n_moving, solver_table, problem, polish, work, tol)
    plausible = keep_chosen(settled, links, blocks, now)
    if len(plausible.components) < len(settled.components):
        n_moving = order_moving_first(plausible, links, products, work)
    _find_duals(plausible, n_moving, solver_table, problem, polish, work, error)
    for c in settled.components:
        if not now[c]:
            _rest(c, progress.iterations[c], polish)
    _move(plausible, problem, polish, error)


@leaf
def wants_polish(c: int, progress: Progress, polish: Polish, tol: float) -> bool:
    """Return whether a component that agrees to `tol` is to be polished before it is done.

    Where its faces have not settled yet, too, and a few times, from where the loop has come. After
    so many iterations that costs little, and what succeeds is exact.
    """
    reached = max(progress.primal_residual[c], progress.dual_residual[c])
    wants = polish.allowed[c] and reached > ROUGH * tol and tol <= COARSE
    wants = wants and polish.last_tries[c] < MOST_LAST_TRIES
    polish.last_tries[c] += wants
    return wants


@leaf
def _rest(c: int, iteration: int, polish: Polish) -> None:
    """Leave a component to the loop, and to acceleration, for longer after every failure.

    Where the loop circles through some faces, all wrong, it would be stopped at each for ever.
    """
    polish.rests_until[c] = iteration + PERIOD * 2 ** min(polish.failures[c], MOST_DOUBLINGS)
    polish.failures[c] += 1


@leaf
def take_back_polish(selection: Selection, problem: LoopProblem, polish: Polish) -> None:
    """Put components back that a polish did not bring nearer; their local scores are stale."""
    links, iterate, progress = problem.links, problem.iterate, problem.progress
    any_worse = False
    for c in selection.components:
        polish.worse[c] = False
        if polish.pending[c] and not polish.now[c]:
            polish.pending[c] = False
            reached = max(progress.primal_residual[c], progress.dual_residual[c])
            if not progress.converged[c] and not reached <= 0.5 * polish.before[c]:
                progress.primal_residual[c] = progress.dual_residual[c] = polish.before[c]
                polish.worse[c] = progress.stale[c] = any_worse = True
                _rest(c, progress.iterations[c], polish)
    if not any_worse:
        return
    for v in selection.variables:
        if polish.worse[links.component[v]]:
            iterate.u[v] = polish.u[v]
            for e in range(links.offsets[v], links.offsets[v + ONE]):
                iterate.duals[e] = polish.duals[e]


@leaf
def _find_settled(
    selection: Selection, solver_table: Any, problem: LoopProblem, polish: Polish, work: Work
) -> bool:
    """Leave in ``polish.now`` the components whose faces are the last probe's and not tried yet."""
    links, now, look = problem.links, polish.now, polish.looks[selection.components[0]]
    latest, before = polish.probed[look % 2], polish.probed[1 - look % 2]
    multiply_locally(
        selection, solver_table, problem.blocks, polish.numbers, work.no_v, latest, work.outputs_v
    )
    for c in selection.components:
        now[c] = 0 < polish.probed_at[c] == look - 1
        polish.tried[c] &= now[c]
        polish.probed_at[c] = look
    for v in selection.variables:
        c = links.component[v]
        if not now[c]:
            continue
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            now[c] &= latest[links.order[e]] == before[links.order[e]]
        polish.tried[c] &= now[c]
    any_settled = False
    for c in selection.components:
        now[c] = (now[c] or polish.waits[c]) and not polish.tried[c]
        polish.tried[c] |= now[c]
        any_settled |= now[c]
    return any_settled


@leaf
def _find_mu(
    selection: Selection,
    n_moving: int,
    solver_table: Any,
    problem: LoopProblem,
    polish: Polish,
    work: Work,
    tol: float,
) -> None:
    """Write ``shift - c`` and the means mu; ``polish.now`` keeps the components that succeed.

    Those whose faces are seen to be wrong are spared the duals, and the loop the way back.
    """
    links, blocks, iterate, extras = problem.links, problem.blocks, problem.iterate, problem.extras
    inputs, outputs, offset, mu = work.inputs, work.outputs, polish.offset, polish.mu
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            inputs[links.order[e]] = iterate.a[links.order[e]]
    multiply_locally(
        selection, solver_table, blocks, inputs, extras.scaled, outputs, work.outputs_v
    )
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            offset[e] = _shift(v, e, links) - iterate.z[link] + outputs[link]
            inputs[link] = 0.0
        mu[v] = iterate.eta[v]
    if len(extras.eta) > 0:
        multiply_locally(
            selection, solver_table, blocks, inputs, extras.eta, outputs, work.outputs_v
        )
        gather_from_links(selection, links, outputs, work.image)
        for v in selection.variables:
            mu[v] += work.image[v]
    _set_targets(selection, problem, mu, work, ACCURACY * tol)
    scatter_to_links(selection, links, mu, inputs)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            inputs[links.order[e]] += offset[e]
    multiply_locally(selection, solver_table, blocks, inputs, work.no_v, outputs, work.outputs_v)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            outputs[links.order[e]] = inputs[links.order[e]] - outputs[links.order[e]]
    gather_from_links(selection, links, outputs, work.residual)
    reduce_residual(selection, n_moving, solver_table, problem, work, mu, MAX_PRODUCTS)
    for c in selection.components:
        polish.now[c] = not work.running[c]
    for v in selection.variables:
        polish.now[links.component[v]] &= -OUTSIDE <= mu[v] <= 1.0 + OUTSIDE


@leaf
def _sign(e: int, links: Links) -> float:
    return -1.0 if links.negated[e] else 1.0


@leaf
def _shift(v: int, e: int, links: Links) -> float:
    return 1.0 / links.root_degree[v] if links.negated[e] else 0.0


@leaf
def _set_targets(
    selection: Selection, problem: LoopProblem, mu: FloatArray, work: Work, accuracy: float
) -> None:
    """Write the squared residuals to reach: an accuracy, but no less than the scores' rounding.

    Scores of variables and of additionals can cancel in `mu`, but their rounding does not.
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
    work: Work,
    error: FloatArray,
) -> None:
    """Write the correction of the duals, in local signs, to `error`."""
    links, blocks, iterate, extras = problem.links, problem.blocks, problem.iterate, problem.extras
    inputs, outputs = work.inputs, work.outputs
    scatter_to_links(selection, links, iterate.eta, inputs)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            inputs[links.order[e]] += _sign(e, links) * iterate.duals[e] + _shift(v, e, links)
    multiply_locally(selection, solver_table, blocks, inputs, extras.eta, outputs, work.outputs_v)
    for v in selection.variables:
        polish.t[v] = 0.0
        copy = polish.mu[v] / links.root_degree[v]
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            error[link] = _sign(e, links) * copy + polish.offset[e] - outputs[link]
            outputs[link] = -error[link]
    gather_from_links(selection, links, outputs, work.residual)
    reduce_residual(selection, n_moving, solver_table, problem, work, polish.t, MAX_PRODUCTS)
    for c in selection.components:
        polish.now[c] = polish.now[c] and not work.running[c]
    scatter_to_links(selection, links, polish.t, inputs)
    multiply_locally(selection, solver_table, blocks, inputs, work.no_v, outputs, work.outputs_v)
    for v in selection.variables:
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            link = links.order[e]
            error[link] += outputs[link] - inputs[link]
            polish.now[links.component[v]] &= abs(error[link]) < np.inf


@leaf
def _move(selection: Selection, problem: LoopProblem, polish: Polish, error: FloatArray) -> None:
    """Set means and duals of the components that succeeded, and keep the old ones."""
    links, iterate = problem.links, problem.iterate
    for c in selection.components:
        polish.pending[c] = polish.now[c]
        problem.progress.stale[c] |= polish.now[c]
    for v in selection.variables:
        if not polish.now[links.component[v]]:
            continue
        lo, hi = links.offsets[v], links.offsets[v + ONE]
        polish.u[v] = iterate.u[v]
        iterate.u[v] = polish.mu[v] / links.root_degree[v]
        total = 0.0
        for e in range(lo, hi):
            polish.duals[e] = iterate.duals[e]
            iterate.duals[e] += _sign(e, links) * error[links.order[e]]
            total += iterate.duals[e]
        # what conjugate gradients left of the sum would change the scores
        for e in range(lo, hi):
            iterate.duals[e] -= total / float(hi - lo)
