"""The loop: LP-SparseMAP by ADMM (Niculae & Martins 2020, Algorithm 1).

An iteration solves the local problems of a component. One pass over the variables then averages
their copies, updates the duals and writes the next local scores. For a variable v, its links l and
its factors f, with the sign of the paper's line 6 corrected::

    a_l = (eta_v / delta_v + lambda_l + gamma u_v) / (q + gamma)
    z_f = the local solution at (a, eta_N / (q + gamma))
    u_v = mean over the links l of v of z_l
    lambda_l += gamma (u_v - z_l)

where q is 1, or 0 without the quadratic term, for LP-MAP (AD3, Martins et al. 2015). Added to this
are over-relaxation, a step size for each component that balances its two residuals, a polish once
the faces have settled, and Anderson acceleration of slow components. With the quadratic term, a
component of one factor has step size 0, which makes its first iteration the solution.

Components are solved one after the other, so that their data stay in the processor's cache. They
are batched only where a solver is much faster on many factors at once. The whole loop is compiled
and holds no lock. The solution of a component does not depend on the other components.
"""

from __future__ import annotations

from lpsmap_core.engine.infeasible import FIRST_TEST, InfeasibilityTest
from lpsmap_core.engine.lazy_steps import PLACES
from lpsmap_core.engine.loop import Limits, loop
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.polish import LoopWorkspace, make_loop_workspace
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.soundness import check_local_solutions
from lpsmap_core.engine.state import ONE_PASS_CHEAPER, PartState, initial_state
from lpsmap_core.layout.layout import Part
from lpsmap_core.local.active.limits import SHORT_RUN, UNTIL_SOLVED
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.interrupts import out_of_time
from lpsmap_jit.lazy_kernels import raise_late
from lpsmap_jit.memory import Memory
from lpsmap_jit.threads import in_shares

__all__ = ["advance_components", "run_loop", "solve_part"]

CLOCK_PERIOD = 10
"""Iterations per round over all components if time is limited, so that every component progresses.
Each round restarts acceleration."""


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
    """Run the loop on some components until they are solved, or a limit is reached."""
    progress, alone = state.problem.progress, state.problem.direct
    (direct,), (coupled,) = (alone & chosen).nonzero(), (chosen > alone).nonzero()
    # without the quadratic term, a face does not determine the solution
    polished = options.adapt and len(coupled) > 0 and state.problem.quadratic > 0.0
    workspace = make_loop_workspace(state, polished)
    if len(direct):
        inner = options.max_inner_iter or UNTIL_SOLVED
        limits = Limits(1, 1, inner, options.tol, options.tol, False, 1.0)
        cheaper = ONE_PASS_CHEAPER if state.one_pass else 1
        advance_components(state, direct, workspace, limits, options.threads, cheaper)
        state.out_of_time = out_of_time()
    inner = options.max_inner_iter or SHORT_RUN
    tolerances = options.tol, options.tol if options.dual_tol is None else options.dual_tol
    test, stop = InfeasibilityTest(state), 0
    while len(coupled) and stop < options.max_iter and not state.out_of_time:
        last, stop = stop, min(test.next_iteration, options.max_iter)
        final = options.max_iter
        if options.max_time is not None:
            final = stop = min(stop, last + CLOCK_PERIOD)
        limits = Limits(stop, final, inner, *tolerances, options.adapt, options.relaxation)
        advance_components(state, coupled, workspace, limits, options.threads)
        coupled = coupled[~progress.converged[coupled]]
        last_chance = stop == options.max_iter and stop > FIRST_TEST
        if len(coupled) and (stop == test.next_iteration or last_chance):
            coupled = coupled[~test.find(coupled)]
        state.out_of_time = out_of_time()
    _forget_unsolved(state)
    check_local_solutions(state)


def _forget_unsolved(state: PartState) -> None:
    """Write zeros for the additionals of components that were skipped or that ran out of time."""
    v = state.problem.extras.v
    if len(v) and not state.problem.progress.iterations.all():
        v[(state.problem.progress.iterations == 0)[state.part.additional_component]] = 0.0


def advance_components(
    state: PartState,
    components: IntArray,
    workspace: Memory[LoopWorkspace],
    limits: Limits,
    threads: int = 1,
    cheaper: int = 1,
) -> None:
    """Run the loop on some components until they are solved, or the limits are reached."""
    batched = state.batched
    handles = state.solver_table, state.handle, workspace.handle

    def run(share: IntArray) -> None:
        loop(share, batched, *handles, PLACES, limits, state.trace)
        raise_late()

    sizes = state.part.sizes[components]
    in_shares(run, components, sizes, 1 if batched else threads, cheaper)
    state.raise_errors()
