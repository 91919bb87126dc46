"""A part's problem and the explicit state of the loop that solves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.problem import LoopProblem, new_problem, problem_at
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.scores import EVERYWHERE, RESIDUAL_ROUNDING, set_scores
from lpsmap_core.layout.layout import Bucket, Part
from lpsmap_core.local.protocol import LocalSolver
from lpsmap_core.local.solvers import local_solver, make_solver_table
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf
from lpsmap_jit.memory import Memory

__all__ = [
    "EXACT",
    "PartState",
    "initial_state",
    "scale_additionals",
    "sums",
]

NO_TRACE = np.empty((0, 2, 0))
"""What loops get that keep no residuals."""

JUMP = 2.0
"""Scores that differ by more than this factor are another problem, for which earlier duals are no
start. At 3 they took 0.7 to 1.7 times the iterations, at 10 up to 4 times."""

EXACT = 1e-12
"""Residuals up to this are rounding; those in units of scores relative to the largest score."""


@dataclass
class PartState:
    """A solved part: the iterate, and the solvers that hold the faces of its factors."""

    part: Part
    memory: Memory[LoopProblem]
    """The problem with the iterate."""
    solvers: list[LocalSolver]
    trace: FloatArray
    """(iterations, 2, n_components) residuals of every iteration if they are to be kept; NaN where
    a component did not take part.
    """
    largest: float
    """The largest magnitude of the scores, at least 1; infinite if any variable or additional is
    forbidden, or any variable has to be on."""
    out_of_time: bool = False
    imprecise: BoolArray | None = None
    """For each component, whether its scores are more than float64 holds; without, none are."""
    shrunk: FloatArray | float = 1.0
    """For each component, how many times the true scores are as large as those that were solved."""
    withheld: tuple[FloatArray, FloatArray] | None = None
    """Scores of the variables and additionals that were forbidden though they are finite, else 0;
    None if there are none."""
    contradicting: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """For each component that is infeasible, (bucket, row) of factors that contradict."""
    max_time: float | None = None
    """Limit of the seconds of a product with the Jacobian, as of the solve."""

    def __post_init__(self) -> None:
        self.problem, self.handle = self.memory.record, self.memory.handle
        self.solver_table = make_solver_table(self.solvers)
        self.together = any(solver.vectorised for solver in self.solvers)
        """Whether any solver serves many rows at once much faster."""
        self.faces_complete = all(solver.faces_complete for solver in self.solvers)

    @property
    def forbids(self) -> bool:
        """Whether any variable or additional is forbidden, or any variable has to be on."""
        return self.largest == np.inf

    def raise_errors(self) -> None:
        """Raise what a factor type's own Python code raised inside a compiled loop."""
        for solver in self.solvers:
            solver.raise_error()

    def complete_faces(self) -> None:
        """Prepare the faces of converged components for derivatives; at most once."""
        if self.faces_complete:
            return
        iterate, converged = self.problem.iterate, self.problem.progress.converged
        for b, (bucket, solver) in enumerate(zip(self.part.buckets, self.solvers, strict=True)):
            if solver.faces_complete:
                continue
            links, additionals = self.part.links_of(b), self.part.additionals_of(b)
            rows = np.flatnonzero(converged[bucket.component])
            scaled = self.problem.extras.scaled[additionals]
            solver.complete_faces(rows, iterate.a[links], scaled, iterate.z[links])
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
        _means(self.handle, means)
        return means


def initial_state(
    part: Part, eta: FloatArray, eta_v: FloatArray, options: Options, warm: WarmStart | None = None
) -> PartState:
    """Return the state before the first iteration; see `Engine.solve`."""
    memory = new_problem(part, options.quadratic)
    largest = set_scores(memory.handle, EVERYWHERE, eta, eta_v, options)
    barred = memory.record.extras.barred if largest == np.inf else None
    n = options.max_iter if options.trace else 0
    trace = np.full((n, 2, part.n_components), np.nan) if n else NO_TRACE
    solvers = _solvers(part, barred, options)
    state = PartState(part, memory, solvers, trace, largest, max_time=options.max_time)
    if warm is not None:
        _set_out_from(warm, part, state.problem)
        if isinstance(warm.solved, PartState):
            _start_warm(warm.solved, state.solvers, state.problem)
    return state


def _solvers(part: Part, barred: ByteArray | None, options: Options) -> list[LocalSolver]:
    """Return the buckets' solvers, which know what is forbidden; None for nothing.

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
            None if barred is None else barred[part.additionals_of(b)],
        )
        for b, bucket in enumerate(part.buckets)
    ]


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


def _start_warm(old: PartState, solvers: list[LocalSolver], problem: LoopProblem) -> None:
    """Let solvers start warm, unless other structures are allowed or forbidden than before."""
    score = problem.iterate.score
    if not np.array_equal(np.where(np.isinf(score), score, 0.0), old.decided):
        return
    if not np.array_equal(problem.extras.barred, old.problem.extras.barred):
        return
    for solver, other in zip(solvers, old.solvers, strict=True):
        if solver.starts_warm and _allow_the_same(solver.bucket, other.bucket):
            solver.copy_from(other)


def _allow_the_same(bucket: Bucket, other: Bucket) -> bool:
    """Return whether factors over the same links are known to have the same structures.

    Kernels see the type's parameters alone. Python's oracles may look at anything else of an
    instance, so that only the same instances will do.
    """
    mine, theirs = bucket.declarations, other.declarations
    if len(mine) == len(theirs) and all(a is b for a, b in zip(mine, theirs, strict=True)):
        return True
    fields = zip(bucket.factors, other.factors, strict=True)
    return bucket.type.map_kernel is not None and all(np.array_equal(a, b) for a, b in fields)


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
def _means(handle: Any, means: FloatArray) -> None:
    """Write every variable's mean copy, in units of marginals."""
    problem = problem_at(handle)
    links, z = problem.links, problem.iterate.z
    for v in range(len(means)):
        lo, hi = links.offsets[v], links.offsets[v + 1]
        total = 0.0
        for e in range(lo, hi):
            copy = z[links.order[e]]
            total += 1.0 / links.root_degree[v] - copy if links.negated[e] else copy
        means[v] = min(1.0, max(0.0, total / links.root_degree[v]))
