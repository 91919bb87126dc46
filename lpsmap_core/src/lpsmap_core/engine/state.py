"""The state of a solve: the problem of a part, its iterate and its local solvers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.problem import (
    EVERYWHERE,
    LoopProblem,
    new_problem,
    problem_at,
    set_scores,
)
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.starts import ServedStart
from lpsmap_core.engine.stopping import CONVERGED, EXACT_RESIDUAL
from lpsmap_core.layout.layout import Bucket, Part
from lpsmap_core.local.local_solver import LocalSolver
from lpsmap_core.local.solvers import local_solver, takes_one_pass
from lpsmap_jit.arrays import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_jit.compile import leaf
from lpsmap_jit.interrupts import out_of_time
from lpsmap_jit.memory import Memory

NO_TRACE = np.empty((0, 2, 0))
"""The trace of loops that keep no residuals."""

MAX_RESCALING = 2.0
"""Factor by which the scale of the scores may differ for earlier duals to be a good start. At a
factor of 3 they took 0.7 to 1.7 times the iterations, at 10 up to 4 times."""

ONE_PASS_CHEAPER = 64
"""How many times cheaper a link is than in other components if one pass of a closed form solves the
component: two threads take longer than one for up to 200,000 such links."""


class BucketView(NamedTuple):
    """A bucket with its solver, and its parts of the arrays of a problem."""

    bucket: Bucket
    solver: LocalSolver
    links: slice
    additionals: slice
    a: FloatArray
    """Local scores of the slots."""
    eta_v: FloatArray
    """Local scores of the additionals."""
    z: FloatArray
    """Local solutions."""
    v: FloatArray
    """Marginals of the additionals; empty if the solver writes them on request."""


@dataclass
class PartState:
    """A solved part: the iterate, and the solvers that hold the faces of its factors."""

    part: Part
    memory: Memory[LoopProblem]
    """The problem with the iterate."""
    solvers: list[LocalSolver]
    trace: FloatArray
    """(iterations, 2, n_components) residuals of every iteration, empty if they are not kept; NaN
    for iterations that a component skipped.
    """
    largest: float
    """The largest magnitude of the scores, at least 1; infinite if any variable or additional is
    forbidden, or any variable is forced on."""
    options: Options
    """Those of the solve; products with the Jacobian have the same time limit."""
    starts: list[ServedStart] = field(default_factory=list)
    out_of_time: bool = False
    imprecise: BoolArray | None = None
    """For each component, whether its scores exceed the precision of float64; None if none do."""
    shrunk: FloatArray | float = 1.0
    """For each component, the ratio of its true scores to the solved ones."""
    withheld: tuple[FloatArray, FloatArray] | None = None
    """Finite scores of variables and additionals that were forbidden, 0 for all others; None
    without forbidden ones."""
    contradicting: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """For each infeasible component, the (bucket, row) pairs of contradicting factors."""

    def __post_init__(self) -> None:
        self.problem, self.handle = self.memory.record, self.memory.handle
        self.views = [self._view(b) for b in range(len(self.solvers))]
        self.vectorised = any(solver.vectorised for solver in self.solvers)
        """Whether any solver is much faster on many rows at once."""
        self.faces_complete = all(solver.faces_complete for solver in self.solvers)

    def _view(self, b: int) -> BucketView:
        links, additionals = self.part.links_of(b), self.part.additionals_of(b)
        iterate, extras, solver = self.problem.iterate, self.problem.extras, self.solvers[b]
        return BucketView(
            self.part.buckets[b],
            solver,
            links,
            additionals,
            iterate.a[links],
            extras.scaled[additionals],
            iterate.z[links],
            extras.v[slice(0) if solver.lists_structures else additionals],
        )

    @property
    def one_pass(self) -> bool:
        """Whether compiled closed forms that do not iterate solve all local problems."""
        return all(takes_one_pass(type(solver), solver.bucket.type) for solver in self.solvers)

    @property
    def forbids(self) -> bool:
        """Whether any variable or additional is forbidden, or any variable is forced on."""
        return self.largest == np.inf

    def complete_faces(self) -> None:
        """Prepare the faces of converged components for derivatives; at most once.

        After a time limit the next call continues.
        """
        if self.faces_complete:
            return
        converged = self.problem.progress.outcome == CONVERGED
        for view in self.views:
            if not view.solver.faces_complete:
                rows = np.flatnonzero(converged[view.bucket.component])
                view.solver.complete_faces(rows, view.a, view.eta_v, view.z)
        self.faces_complete = not out_of_time()

    def at_inner_limit(self) -> BoolArray:
        """Return which components end with a factor whose local problem is unsolved.

        In coupled components the limit of active sets applies to each iteration of the loop.
        """
        progress = self.problem.progress
        started = progress.iterations > 0  # 0 if the time ran out
        limited = progress.at_inner_limit & self.part.direct & started
        limited[self.unsolved_forms()] = True
        return limited

    def unsolved_forms(self) -> IntArray:
        """Return the components with a factor whose closed form ended without the solution."""
        components = [
            view.bucket.component[view.solver.unsolved()]
            for view in self.views
            if view.bucket.type.projection_iterates and not view.solver.iterates
        ]
        return np.concatenate(components) if components else np.empty(0, dtype=np.int64)

    @property
    def forbidden(self) -> BoolArray:
        """For each variable, whether it is forbidden."""
        return np.isneginf(self.problem.iterate.score)

    def decided(self, variables: IntArray | slice = slice(None)) -> FloatArray:
        """Return ``-inf`` for variables that are forbidden, ``inf`` for forced ones, else 0."""
        score = self.problem.iterate.score[variables]
        return np.where(np.isinf(score), score, 0.0)

    def given_scores(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores of variables and additionals, infinite where these are decided."""
        decided, extras = self.decided(), self.problem.extras
        eta = np.where(decided == 0.0, self.problem.iterate.eta, decided)
        return eta, np.where(extras.forbidden, -np.inf, extras.eta)

    def exact(self) -> BoolArray:
        """Return which components have converged with residuals that are rounding."""
        progress = self.problem.progress
        agree = progress.primal_residual <= EXACT_RESIDUAL
        optimal = progress.dual_residual <= EXACT_RESIDUAL * progress.largest_score
        exact: BoolArray = (progress.outcome == CONVERGED) & agree & optimal
        return exact

    def slot_scores(self) -> FloatArray:
        """Return ``eta / delta + lambda`` of every slot, with the sign of the slot.

        Local solutions that agree maximise ``<., z> - q/2 ||z||^2`` for these scores, with q = 0
        without the quadratic term. The duals of every variable are shifted to sum to zero exactly.
        Scores of forced slots are infinite.
        """
        part, iterate = self.part, self.problem.iterate
        degree = np.diff(part.variable_offsets)
        mean = np.add.reduceat(iterate.duals, part.variable_offsets[:-1]) / degree
        of_variables = np.repeat(iterate.score - mean, degree)
        of_variables += iterate.duals
        a = np.empty(part.n_links)
        a[part.links.order] = of_variables
        np.negative(a, out=a, where=part.negated)
        return a + self.problem.quadratic * part.shift if self.problem.quadratic != 0.0 else a

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals."""
        v, chosen = self.problem.extras.v, self.problem.progress.iterations > 0
        if not self.problem.quadratic:
            chosen = chosen & ~self.part.direct  # their best structures are written already
        for view in self.views:
            if view.solver.lists_structures and len(v):
                rows = np.flatnonzero(chosen[view.bucket.component])
                view.solver.write_additionals(rows, v[view.additionals])
        return v

    def marginals(self) -> FloatArray:
        """Return the means of the variables' copies, in [0, 1]."""
        means = np.empty(self.part.n_variables)
        _means(self.handle, means)
        return means


def initial_state(
    part: Part, eta: FloatArray, eta_v: FloatArray, options: Options, warm: WarmStart | None = None
) -> PartState:
    """Return the state before the first iteration; see `Engine.solve`.

    It refers to `eta_v`, unless there are forbidden additionals, whose scores the loop replaces,
    and to the means and duals of a warm start.
    """
    eta_v = eta_v.copy() if np.isneginf(eta_v).any() else eta_v
    start = () if warm is None else (_own(warm.u), _own(warm.duals))
    memory = new_problem(part, options.quadratic, eta_v, *start)
    largest = set_scores(memory.handle, EVERYWHERE, eta, eta_v, options)
    forbidden = memory.record.extras.forbidden if largest == np.inf else None
    n = options.max_iter if options.trace else 0
    trace = np.full((n, 2, part.n_components), np.nan) if n else NO_TRACE
    solvers = _solvers(part, forbidden, options)
    state = PartState(part, memory, solvers, trace, largest, options)
    if warm is not None:
        _apply_warm_start(warm, part, state.problem)
        if isinstance(warm.solved, PartState):
            _copy_faces(warm.solved, state)
    return state


def _solvers(part: Part, forbidden: ByteArray | None, options: Options) -> list[LocalSolver]:
    """Return the solvers of the buckets; `forbidden` is None if nothing is forbidden.

    Near the solution of LP-MAP few structures matter. The oracle finds them faster than a closed
    form that iterates.
    """
    limited = options.max_inner_iter is not None or options.quadratic == 0.0
    delta = part.delta
    return [
        local_solver(
            bucket,
            delta[part.links_of(b)],
            limited,
            None if forbidden is None else forbidden[part.additionals_of(b)],
        )
        for b, bucket in enumerate(part.buckets)
    ]


def _own(array: FloatArray) -> FloatArray:
    """Return an array of a warm start as kernels need it; a copy only if it is not."""
    return np.require(array, np.float64, ["C", "W"])


def _apply_warm_start(warm: WarmStart, part: Part, problem: LoopProblem) -> None:
    """Take the means, duals and step sizes of a warm start; direct components need none.

    If the scores of a component have become much larger or smaller, it starts from zero, which is
    then closer to the solution than the earlier duals.
    """
    known = warm.known & ~part.direct
    if warm.first_step_size is not None:
        before, now = warm.first_step_size, problem.progress.first_step_size
        known &= (now <= MAX_RESCALING * before) & (before <= MAX_RESCALING * now)
    if not known.all():
        unknown = ~known[part.component]
        problem.iterate.u[unknown] = 0.0
        problem.iterate.duals[np.repeat(unknown, np.diff(part.variable_offsets))] = 0.0
    np.copyto(problem.progress.step_size, warm.step_size, where=known)
    problem.progress.warm[:] = known


def _copy_faces(old: PartState, new: PartState) -> None:
    """Copy the state of earlier solvers if the same entries are forbidden or forced as before."""
    before, now = old.problem.extras.forbidden, new.problem.extras.forbidden
    if not (np.array_equal(new.decided(), old.decided()) and np.array_equal(before, now)):
        return
    for solver, other in zip(new.solvers, old.solvers, strict=True):
        if solver.starts_warm and _have_same_structures(solver.bucket, other.bucket):
            solver.copy_from(other)


def _have_same_structures(bucket: Bucket, other: Bucket) -> bool:
    """Return whether factors over the same links are known to have the same structures.

    Kernels see only the parameters of the type. Oracles in Python may read other attributes of an
    instance, so their instances have to be the same.
    """
    mine, theirs = bucket.declarations, other.declarations
    if len(mine) == len(theirs) and all(a is b for a, b in zip(mine, theirs, strict=True)):
        return True
    fields = zip(bucket.factors, other.factors, strict=True)
    return bucket.type.map_kernel is not None and all(np.array_equal(a, b) for a, b in fields)


@leaf
def _means(handle: Any, means: FloatArray) -> None:
    """Write the mean copy of every variable, in units of marginals."""
    problem = problem_at(handle)
    links, z = problem.links, problem.iterate.z
    for v in range(len(means)):
        lo, hi = links.offsets[v], links.offsets[v + 1]
        total = 0.0
        for e in range(lo, hi):
            copy = z[links.order[e]]
            total += 1.0 / links.root_degree[v] - copy if links.negated[e] else copy
        means[v] = min(1.0, max(0.0, total / links.root_degree[v]))
