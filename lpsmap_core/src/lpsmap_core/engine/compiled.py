"""Core's own engine: the loop, and its solved graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.anderson import MAX_ACCELERATED_LINKS, MAX_MOVES
from lpsmap_core.engine.backward import multiply_jacobian
from lpsmap_core.engine.best_structures import solve_by_oracles
from lpsmap_core.engine.certificate import Optimality, check_optimality, error_bounds
from lpsmap_core.engine.huge_scores import solve_quadratic
from lpsmap_core.engine.infeasible import find_violations
from lpsmap_core.engine.linear import linear_bounds, solve_linear
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.polish import MAX_POLISHED_LINKS
from lpsmap_core.engine.protocol import Engine, SolvedGraph, WarmStart
from lpsmap_core.engine.state import ONE_PASS_CHEAPER, PartState
from lpsmap_core.engine.status import Status
from lpsmap_core.engine.stopping import INFEASIBLE, ITERATING, STATUS_OF
from lpsmap_core.layout.layout import Part
from lpsmap_core.layout.ragged import ranges
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.local_solver import UNTIL_SOLVED
from lpsmap_core.local.vertices import Vertices, join_vertices
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.cached_property import cached_property
from lpsmap_jit.interrupts import interruptible
from lpsmap_jit.threads import COUPLED_WORK


class SolvedPart(SolvedGraph):
    """A part that the loop solved.

    Parameters
    ----------
    state
        The state of the loop, whose local solvers hold the faces.
    """

    def __init__(self, state: PartState) -> None:
        progress = state.problem.progress
        self.state = state
        self.part = state.part
        self.quadratic = state.problem.quadratic
        self.iterations = progress.iterations.copy()
        self.primal_residual = progress.primal_residual.copy()
        self.dual_residual = progress.dual_residual.copy()

    def status(self) -> npt.NDArray[np.object_]:
        """Return the status of every component."""
        state, progress = self.state, self.state.problem.progress
        exact = state.exact()
        regular = state.imprecise is None and not state.unsolved_forms().size
        if regular and exact.all():
            return np.full(self.part.n_components, Status.SOLVED, dtype=object)
        status: npt.NDArray[np.object_] = STATUS_OF[progress.outcome]
        if state.out_of_time:
            status[progress.outcome == ITERATING] = Status.TIME_LIMIT
        status[exact] = Status.SOLVED
        status[state.at_inner_limit()] = Status.INNER_ITERATION_LIMIT
        if state.imprecise is not None and not state.out_of_time:
            status[state.imprecise] = Status.PRECISION_LIMIT
        status[progress.outcome == INFEASIBLE] = Status.INFEASIBLE
        return status

    def unfinished(self) -> BoolArray:
        """Return False for every component: this is core's own result."""
        return np.zeros(self.part.n_components, dtype=bool)

    def marginals(self) -> FloatArray:
        """Return the means of the variables' copies."""
        return self.state.marginals()

    def additionals(self) -> FloatArray:
        """Return the marginals of the additionals of all buckets."""
        return self.state.additionals()

    def multiply(
        self, d: FloatArray, d_v: FloatArray, chosen: BoolArray | None, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        """Multiply with the Jacobian on the current faces; see `SolvedGraph.multiply`.

        Without the quadratic term, solutions are piecewise constant, so the product is zero.
        """
        if self.quadratic == 0.0:
            return np.zeros(len(d)), np.zeros(self.state.problem.extras.eta.size)
        return multiply_jacobian(self.state, d, d_v, chosen, threads)

    @interruptible
    def structures(self, b: int, rows: IntArray) -> Vertices:
        """Return the structures of some factors; see `SolvedGraph.structures`.

        If the solver lists none, an active set finds them from the last local scores.
        """
        state, solver = self.state, self.state.solvers[b]
        if not rows.size:
            return join_vertices([])
        if solver.lists_structures:
            return solver.structures(rows)
        view, whole, everything = state.views[b], solver.bucket, np.arange(len(rows))
        slots, extra = ranges(whole.offsets, rows), ranges(whole.additional_offsets, rows)
        forbidden = state.problem.extras.forbidden[view.additionals][extra]
        sets = ActiveSets(
            whole.select(rows), solver.delta[slots], forbidden if state.forbids else None
        )
        scores = view.a[slots], view.eta_v[extra]
        sets.solve_sets(everything, *scores, np.empty(len(slots)), UNTIL_SOLVED)
        vertices = sets.structures(everything)
        return vertices._replace(owner=rows[vertices.owner])

    def forbidden(self) -> tuple[BoolArray, BoolArray]:
        """Return which variables and additionals were forbidden."""
        return self.state.forbidden, self.state.problem.extras.forbidden != 0

    def gap(self) -> FloatArray:
        """Return a bound on the gap between the maximum and the objective."""
        return (self._optimality.violation + self._optimality.excess) * self.state.shrunk

    def error_bound(self, threads: int) -> FloatArray:
        """Return a bound on the error; see `error_bounds`."""
        return error_bounds(self.state, self._optimality, threads)

    @cached_property
    def _optimality(self) -> Optimality:
        return check_optimality(self.state)

    def assignment_bound(self) -> FloatArray:
        """Return the dual function of LP-MAP at the current duals."""
        if self.state.imprecise is not None:  # the solved scores were not the given ones
            return super().assignment_bound()
        return linear_bounds(self.state)

    def contradictions(self) -> dict[int, list[tuple[int, int]]]:
        """Return the (bucket, row) pairs of contradicting factors of each infeasible component."""
        return self.state.contradicting

    def trace(self) -> FloatArray:
        """Return the residuals of all iterations; a finished component repeats its last ones."""
        trace = self.state.trace[: self.iterations.max(initial=0)]
        last = np.stack([self.primal_residual, self.dual_residual])
        return np.where(np.isnan(trace), last, trace)

    def end(self) -> WarmStart:
        """Return the end of the loop as a warm start."""
        iterate, progress = self.state.problem.iterate, self.state.problem.progress
        known = (progress.iterations > 0) & (progress.outcome != INFEASIBLE)
        numbers = iterate.u, iterate.duals, progress.step_size, progress.first_step_size
        u, duals, step_size, first_step_size = (array.copy() for array in numbers)
        return WarmStart(u, duals, step_size, known, first_step_size, self.state)


class CompiledEngine(Engine):
    """ADMM with a polish and acceleration, compiled, on the processor."""

    name = "compiled"

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return the reason why the engine cannot solve a part with these options, or None."""
        if options.step_size != 0.0 or (options.quadratic and part.direct.all()):
            return None
        return (
            "step_size: got 0, with which factors do not come to agree, but "
            + ("some factors share variables" if options.quadratic else "LP-MAP needs agreement")
            + "; expected a positive number. Leave it at None for the default."
        )

    def solve(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> SolvedGraph:
        """Solve a part; see `Engine.solve`."""
        if not (options.quadratic or options.trace):
            best = solve_by_oracles(part, eta, eta_v)
            if best is not None:
                return best
        run = solve_quadratic if options.quadratic else solve_linear
        state = run(part, eta, eta_v, skip, options, warm)
        find_violations(state)
        return SolvedPart(state)


PER_LINK, PER_LINK_POLISHED = 4, 6
PER_VARIABLE, PER_VARIABLE_POLISHED = 5, 6
PER_ADDITIONAL, PER_ADDITIONAL_POLISHED = 3, 3
PER_FACTOR = 1
PER_LINK_ACCELERATED = 2 * MAX_MOVES + 3
"""Numbers that a solve takes beside the layout: always, additionally in a polished graph, and per
thread for the largest component after many iterations. The test for contradictions, which only runs
for slow components, temporarily takes about ten more per link, and so do proximal steps of LP-MAP.
A test compares these numbers with the memory of solves."""


def numbers_of(part: Part, n_variables: int, threads: int) -> int:
    """Return how many numbers a solve by some threads keeps in memory."""
    accelerated = part.sizes[~part.direct & (part.sizes <= MAX_ACCELERATED_LINKS)].max(initial=0)
    polished = bool((~part.direct & (part.sizes <= MAX_POLISHED_LINKS)).any())
    numbers = PER_VARIABLE * n_variables
    numbers += (PER_LINK + PER_LINK_POLISHED * polished) * part.n_links
    numbers += PER_VARIABLE_POLISHED * polished * part.n_variables
    numbers += (PER_ADDITIONAL + PER_ADDITIONAL_POLISHED * polished) * part.n_additionals
    numbers += PER_FACTOR * sum(bucket.n_factors for bucket in part.buckets)
    return numbers + PER_LINK_ACCELERATED * threads * int(accelerated)


def relative_work(part: Part, one_pass: bool) -> int:
    """Return how many links of a part are as much work as one of a factor that iterates.

    `one_pass` says whether closed forms solve all factors in one pass.
    """
    if one_pass and part.all_direct:
        return ONE_PASS_CHEAPER
    return 1 if part.all_direct else COUPLED_WORK
