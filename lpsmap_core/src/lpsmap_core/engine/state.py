"""A part's problem and the explicit state of the loop that solves it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.engine.threads import in_shares
from lpsmap_core.kernels.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_core.kernels.compile import leaf
from lpsmap_core.layout.arrangement import Blocks, Links
from lpsmap_core.layout.counts import Counts
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.forced import FORBIDDEN
from lpsmap_core.local.solvers import LocalSolver, local_solver, make_solver_table

__all__ = [
    "EXACT",
    "ONE",
    "Extras",
    "Iterate",
    "LoopProblem",
    "PartState",
    "Progress",
    "initial_state",
    "largest_scores",
    "restart_components",
    "scale_additionals",
    "sums",
]

JUMP = 2.0
"""Scores that differ by more than this factor are another problem, for which earlier duals are no
start. At 3 they took 0.7 to 1.7 times the iterations, at 10 up to 4 times."""

EXACT = 1e-12
"""Residuals up to this are rounding; those in units of scores relative to the largest score."""

RESIDUAL_ROUNDING = 1e-14
"""Dual residuals below this multiple of a component's largest score are rounding."""

ONE = np.uint64(1)
"""Added to a variable's number, which is unsigned, see `Blocks.variable_counting`."""


class Iterate(NamedTuple):
    """The loop's state on variables and links."""

    eta: FloatArray
    """Scores of the part's variables, zero where they are decided: no face moves there."""
    score: FloatArray
    """eta / delta, one a variable; ``-inf`` where it is forbidden, ``inf`` where it must be on."""
    u: FloatArray
    duals: FloatArray
    """In the order of the variables; local scores and solutions are in that of the factors."""
    a: FloatArray
    z: FloatArray


class Extras(NamedTuple):
    """The additionals of all buckets: their scores and marginals."""

    eta: FloatArray
    scaled: FloatArray
    """Scores over quadratic + step size, as in the local problems."""
    v: FloatArray
    barred: ByteArray
    """Whether they are forbidden."""


class Progress(NamedTuple):
    """The loop's state on components."""

    step_size: FloatArray
    first_step_size: FloatArray
    primal_residual: FloatArray
    """Largest |mu_v - (M p)_l| of the last iteration."""
    dual_residual: FloatArray
    """Largest gamma |mu_v - previous mu_v|, likewise."""
    iterations: IntArray
    converged: BoolArray
    infeasible: BoolArray
    unsolved: BoolArray
    """Whether a factor's latest local problem hit the iteration limit."""
    stale: BoolArray
    """Whether the local scores have to be written anew."""
    rounding: FloatArray
    """What rounding leaves of `dual_residual`, whatever tolerance is asked for."""
    warm: BoolArray
    """Whether the loop started from an earlier solution, or from multipliers."""


class LoopProblem(NamedTuple):
    """All that the loops work on."""

    links: Links
    blocks: Blocks
    iterate: Iterate
    extras: Extras
    progress: Progress
    direct: BoolArray
    """For each component, whether its one factor's local problem is the whole."""
    counts: Counts
    quadratic: float
    """1 with the quadratic term, 0 without."""


@dataclass
class PartState:
    """A solved part: the iterate, and the solvers that hold the faces of its factors."""

    part: Part
    problem: LoopProblem
    solvers: list[LocalSolver]
    solver_table: Any
    """How compiled loops call the solvers."""
    trace: FloatArray
    """(iterations, 2, n_components) residuals of every iteration if they are to be kept; NaN where
    a component did not take part.
    """
    forbids: bool
    """Whether any variable or additional is forbidden, or any variable has to be on."""
    out_of_time: bool = False
    faces_complete: bool = False
    imprecise: BoolArray | None = None
    """For each component, whether its scores are more than float64 holds; without, none are."""
    shrunk: FloatArray | float = 1.0
    """For each component, how many times the true scores are as large as those that were solved."""
    withheld: tuple[FloatArray, FloatArray] | None = None
    """Scores of the variables and additionals that were forbidden though they are finite, else 0;
    None if there are none."""
    contradicting: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """For each component that is infeasible, (bucket, row) of factors that contradict."""

    def raise_errors(self) -> None:
        """Raise what a factor type's own Python code raised inside a compiled loop."""
        for solver in self.solvers:
            solver.raise_error()

    def complete_faces(self, threads: int = 1) -> None:
        """Prepare the faces of converged components for derivatives; at most once."""
        if self.faces_complete:
            return
        iterate, converged = self.problem.iterate, self.problem.progress.converged
        for b, (bucket, solver) in enumerate(zip(self.part.buckets, self.solvers, strict=True)):
            if not isinstance(solver, ActiveSets):
                continue
            links, additionals = self.part.links_of(b), self.part.additionals_of(b)
            rows = np.flatnonzero(converged[bucket.component])
            scaled = self.problem.extras.scaled[additionals]
            complete = functools.partial(
                solver.complete_faces,
                a=iterate.a[links],
                eta_v=scaled,
                z=iterate.z[links],
            )
            in_shares(complete, rows, np.diff(bucket.offsets)[rows], threads)
        self.faces_complete = True

    @property
    def forbidden(self) -> BoolArray:
        """For each variable, whether it is forbidden."""
        return np.isneginf(self.problem.iterate.score)

    @property
    def decided(self) -> FloatArray:
        """For each variable ``-inf`` where it is forbidden, ``inf`` where it has to be on, or 0."""
        score = self.problem.iterate.score
        return np.where(np.isinf(score), score, 0.0)

    def exact(self) -> BoolArray:
        """Return for each component whether it converged with residuals that are rounding."""
        progress = self.problem.progress
        largest_score = progress.rounding / RESIDUAL_ROUNDING
        agree = progress.primal_residual <= EXACT
        return progress.converged & agree & (progress.dual_residual <= EXACT * largest_score)

    def all_exact(self) -> bool:
        """Return whether all components are feasible and `exact`."""
        progress = self.problem.progress
        numbers = progress.primal_residual, progress.dual_residual, progress.rounding
        return bool(_all_exact(*numbers, progress.converged, progress.infeasible))

    def slot_scores(self) -> FloatArray:
        """Return ``eta / delta + lambda`` of every slot, in the slots' own signs.

        The local solutions maximise ``<., z> - q/2 ||z||^2`` for these, where they agree, with q =
        0 without the quadratic term. The duals of every variable are made to sum to zero exactly.
        Scores of forced slots are infinite.
        """
        part, iterate = self.part, self.problem.iterate
        degree = np.diff(part.variable_offsets)
        mean = np.add.reduceat(iterate.duals, part.variable_offsets[:-1]) / degree
        a = np.empty(part.n_links)
        a[part.links.order] = np.repeat(iterate.score - mean, degree) + iterate.duals
        return part.sign * a + self.problem.quadratic * part.shift

    def marginals(self) -> FloatArray:
        """Return the means of the variables' copies, in [0, 1]."""
        means = np.empty(self.part.n_variables)
        _means(self.problem.links, self.problem.iterate.z, means)
        return means


def initial_state(
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    options: Options,
    warm: WarmStart | None = None,
    largest: FloatArray | None = None,
) -> PartState:
    """Return the state before the first iteration; see `Engine.solve`.

    `largest` is what `largest_scores` returns, where it is known.
    """
    direct = part.direct if options.quadratic else np.zeros_like(part.direct)
    scores = _prepare(part, direct, eta, eta_v, options, largest)
    forbids = scores.forbids
    n, n_links, n_variables = part.n_components, part.n_links, part.n_variables
    duals, z = np.zeros((2, n_links))
    primal_residual, dual_residual = np.full((2, n), np.inf)
    converged, infeasible, unsolved, from_earlier = np.zeros((4, n), dtype=np.bool_)
    solvers = _solvers(part, scores, options)
    problem = LoopProblem(
        links=part.links,
        blocks=part.blocks,
        iterate=Iterate(
            eta=scores.eta,
            score=scores.score,
            u=np.zeros(n_variables),
            duals=duals,
            a=np.empty(n_links),
            z=z,
        ),
        extras=Extras(
            scores.eta_v,
            # single factors have no step size, which their scores would be scaled by
            scores.eta_v if direct.all() else scores.eta_v.copy(),
            np.zeros(len(eta_v)),
            scores.barred,
        ),
        progress=Progress(
            step_size=scores.step_size,
            first_step_size=scores.step_size.copy(),
            primal_residual=primal_residual,
            dual_residual=dual_residual,
            iterations=np.zeros(n, dtype=np.int64),
            converged=converged,
            infeasible=infeasible,
            unsolved=unsolved,
            stale=np.ones(n, dtype=np.bool_),
            rounding=RESIDUAL_ROUNDING * scores.largest,
            warm=from_earlier,
        ),
        direct=direct,
        counts=part.counts,
        quadratic=options.quadratic,
    )
    if warm is not None:
        _set_out_from(warm, part, problem)
        if isinstance(warm.solved, PartState):
            _take_active_sets(warm.solved, solvers, problem)
    trace = np.full((options.max_iter, 2, n), np.nan) if options.trace else np.empty((0, 2, n))
    return PartState(part, problem, solvers, make_solver_table(solvers), trace, forbids)


class _Scores(NamedTuple):
    """Scores as the loop takes them, and what follows from their size."""

    eta: FloatArray
    score: FloatArray
    eta_v: FloatArray
    barred: ByteArray
    largest: FloatArray
    step_size: FloatArray
    forbids: bool


def _solvers(part: Part, scores: _Scores, options: Options) -> list[LocalSolver]:
    """Return the solvers of the buckets' local problems.

    Near the solution of LP-MAP few structures matter, and the oracle finds them sooner than a
    closed form that iterates.
    """
    limited = options.max_inner_iter is not None or options.quadratic == 0.0
    return [
        local_solver(
            bucket,
            part.delta[part.links_of(b)],
            options.generic,
            limited,
            scores.barred[part.additionals_of(b)] if scores.forbids else None,
        )
        for b, bucket in enumerate(part.buckets)
    ]


def _prepare(
    part: Part,
    direct: BoolArray,
    eta: FloatArray,
    eta_v: FloatArray,
    options: Options,
    largest: FloatArray | None = None,
) -> _Scores:
    """Set scores of ``-inf`` apart, and choose the first step sizes."""
    step_size = first_step_sizes(part.component, direct, eta, options)
    score, barred = eta / part.root_degree, np.zeros(len(eta_v), dtype=np.int8)
    largest = largest_scores(part, eta, eta_v) if largest is None else largest
    forbids = bool(np.isinf(largest).any())
    if forbids:
        eta, eta_v, largest = _made_finite(part, eta, eta_v, barred)
    return _Scores(eta, score, eta_v, barred, largest, step_size, forbids)


def _made_finite(
    part: Part, eta: FloatArray, eta_v: FloatArray, barred: ByteArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return finite scores of variables and additionals, and the largest in every component.

    Forbidden additionals are marked in `barred`.
    """
    barred[:] = np.isneginf(eta_v)
    eta, eta_v = np.where(np.isinf(eta), 0.0, eta), np.where(barred, 0.0, eta_v)
    largest = largest_scores(part, eta, eta_v)
    return eta, np.where(barred, -FORBIDDEN * largest[part.additional_component], eta_v), largest


def restart_components(
    state: PartState, chosen: BoolArray, eta: FloatArray, eta_v: FloatArray, options: Options
) -> None:
    """Give some components other scores; the loop goes on from the means and duals that it has.

    Nothing may be forbidden where nothing was.
    """
    part, iterate, extras = state.part, state.problem.iterate, state.problem.extras
    progress = state.problem.progress
    scores = _prepare(part, state.problem.direct, eta, eta_v, options)
    variables, additionals = chosen[part.component], chosen[part.additional_component]
    np.copyto(iterate.eta, scores.eta, where=variables)
    np.copyto(iterate.score, scores.score, where=variables)
    np.copyto(extras.eta, scores.eta_v, where=additionals)
    np.copyto(extras.scaled, scores.eta_v, where=additionals)
    np.copyto(extras.barred, scores.barred, where=additionals)
    np.copyto(progress.rounding, RESIDUAL_ROUNDING * scores.largest, where=chosen)
    for step_size in (progress.step_size, progress.first_step_size):
        np.copyto(step_size, scores.step_size, where=chosen)
    for flags in (progress.converged, progress.infeasible, progress.unsolved, progress.warm):
        flags[chosen] = False
    progress.iterations[chosen] = 0
    progress.stale[chosen] = True


def _set_out_from(warm: WarmStart, part: Part, problem: LoopProblem) -> None:
    """Start where the warm start says; single factors need no start.

    Components whose scores have become much larger or smaller start from nothing: duals of
    another size are farther from the solution's than zeros are.
    """
    known = warm.known & ~problem.direct
    if warm.first_step_size is not None:
        before, now = warm.first_step_size, problem.progress.first_step_size
        known &= (now <= JUMP * before) & (before <= JUMP * now)
    of_variable = known[part.component]
    of_link = np.repeat(of_variable, np.diff(part.variable_offsets))
    problem.iterate.u[of_variable] = warm.u[of_variable]
    problem.iterate.duals[of_link] = warm.duals[of_link]
    problem.progress.step_size[known] = warm.step_size[known]
    problem.progress.warm[:] = known


def _take_active_sets(old: PartState, solvers: list[LocalSolver], problem: LoopProblem) -> None:
    """Copy active sets, unless other variables or additionals are forbidden than before."""
    score = problem.iterate.score
    if not np.array_equal(np.where(np.isinf(score), score, 0.0), old.decided):
        return
    if not np.array_equal(problem.extras.barred, old.problem.extras.barred):
        return
    for solver, other in zip(solvers, old.solvers, strict=True):
        if isinstance(solver, ActiveSets) and isinstance(other, ActiveSets):
            solver.copy_from(other)


def largest_scores(part: Part, eta: FloatArray, eta_v: FloatArray) -> FloatArray:
    """Return the largest magnitude of the scores of every component, at least 1."""
    largest = np.empty(part.n_components)
    _magnitudes(part.blocks, eta, eta_v, largest)
    return largest


@leaf
def _magnitudes(blocks: Blocks, eta: FloatArray, eta_v: FloatArray, largest: FloatArray) -> None:
    """Write what `largest_scores` returns."""
    first = blocks.first_variable
    for c in range(len(largest)):
        largest[c] = _larger(eta[first[c] : first[c + 1]], 1.0)
    if len(eta_v) > 0:
        first = blocks.additional_offsets
        for f in range(len(blocks.component)):
            c = blocks.component[f]
            largest[c] = _larger(eta_v[first[f] : first[f + 1]], largest[c])


@leaf
def _larger(scores: FloatArray, least: float) -> float:
    """Return the largest magnitude of some scores, or `least` if that is larger."""
    whole = len(scores) - len(scores) % 4
    a = b = c = d = least
    for i in range(0, whole, 4):  # four chains of comparisons, which a processor runs at once
        a = max(a, abs(scores[i]))
        b = max(b, abs(scores[i + 1]))
        c = max(c, abs(scores[i + 2]))
        d = max(d, abs(scores[i + 3]))
    for i in range(whole, len(scores)):
        a = max(a, abs(scores[i]))
    return max(max(a, b), max(c, d))


@leaf
def scale_additionals(rows: IntArray, b: int, problem: LoopProblem) -> None:
    """Write the local scores, eta_N / (quadratic + step size), of some factors of a bucket.

    Where a component is one factor, they are the scores already.
    """
    blocks, extras = problem.blocks, problem.extras
    for row in rows:
        f = blocks.first_factor[b] + row
        c = blocks.component[f]
        if problem.direct[c]:
            continue
        factor = 1.0 / (problem.quadratic + problem.progress.step_size[c])
        for i in range(blocks.additional_offsets[f], blocks.additional_offsets[f + 1]):
            extras.scaled[i] = extras.eta[i] * factor


def sums(owner: IntArray, values: FloatArray, n: int) -> FloatArray:
    """Return the sums of some values by their owners 0 to n - 1."""
    return np.bincount(owner, values, minlength=n).astype(np.float64, copy=False)


@leaf
def _all_exact(
    primal_residual: FloatArray,
    dual_residual: FloatArray,
    rounding: FloatArray,
    converged: BoolArray,
    infeasible: BoolArray,
) -> bool:
    """Return what `PartState.all_exact` does."""
    n_exact = 0
    for c in range(len(primal_residual)):
        largest_score = rounding[c] / RESIDUAL_ROUNDING
        small = primal_residual[c] <= EXACT and dual_residual[c] <= EXACT * largest_score
        n_exact += small and converged[c] and not infeasible[c]
    return n_exact == len(primal_residual)


@leaf
def _means(links: Links, z: FloatArray, means: FloatArray) -> None:
    """Write every variable's mean copy, in units of marginals."""
    for v in range(len(means)):
        lo, hi = links.offsets[v], links.offsets[v + 1]
        total = 0.0
        for e in range(lo, hi):
            copy = z[links.order[e]]
            total += 1.0 / links.root_degree[v] - copy if links.negated[e] else copy
        means[v] = min(1.0, max(0.0, total / links.root_degree[v]))
