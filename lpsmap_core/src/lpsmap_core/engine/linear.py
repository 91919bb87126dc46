"""Solves without the quadratic term: LP-MAP."""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.admm import run_loop
from lpsmap_core.engine.infeasible import find_violations
from lpsmap_core.engine.magnitudes import HUGE_RATIO, Split, any_large
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.problem import set_scores
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.proximal import move_to_solution
from lpsmap_core.engine.state import PartState, initial_state
from lpsmap_core.engine.stopping import INFEASIBLE, ITERATING
from lpsmap_core.face_codes import EPSILON
from lpsmap_core.layout.layout import Part
from lpsmap_core.layout.ragged import sums
from lpsmap_core.local.local_solver import UNTIL_SOLVED
from lpsmap_core.local.oracles import HELD, best_feasible
from lpsmap_jit.arrays import BoolArray, FloatArray

BOUND_TOLERANCE = 1e-12
"""Relative difference of bounds up to which it is rounding."""

MAX_LOOP_ITERATIONS = 100
"""Number of iterations of the loop before proximal steps: most components need fewer."""

TESTS = 2
"""Number of iterations that test the solution of proximal steps."""

SUM_ROUNDING = 8.0 * EPSILON
"""Rounding of a bound relative to the summed magnitudes of its terms."""

MASK_LIMIT = 1e100
"""Masks are clipped to this magnitude, so that sums stay finite."""


def solve_linear(
    part: Part,
    eta: FloatArray,
    eta_v: FloatArray,
    skip: BoolArray,
    options: Options,
    warm: WarmStart | None = None,
) -> PartState:
    """Solve one part without the quadratic term; see `Engine.solve` for the arguments.

    A score of ``inf``, which users cannot give, forces a variable on.
    """
    withheld = hugely_negative(part, eta, eta_v)
    if withheld is None:
        state = initial_state(part, eta, eta_v, options, warm)
        _run(state, ~skip, options)
        return state
    off, off_v = (scores < 0.0 for scores in withheld)
    reduced = np.where(off, -np.inf, eta), np.where(off_v, -np.inf, eta_v)
    state = initial_state(part, *reduced, options, warm)
    _run(state, ~skip, options)
    find_violations(state)
    contradicts = state.problem.progress.outcome == INFEASIBLE
    needing = contradicts | _could_gain(state, withheld)
    if needing.any():
        off[needing[part.component]] = False
        off_v[part.on_additionals(needing)] = False
        reduced = np.where(off, -np.inf, eta), np.where(off_v, -np.inf, eta_v)
        set_scores(state.handle, needing, *reduced, options)
        state.contradicting.clear()
        for view in state.views:
            # structures that joined when no others were allowed, which the loop does not drop
            view.solver.forget(np.flatnonzero(needing[view.bucket.component]))
        _run(state, needing, options)
    state.withheld = np.where(off, withheld[0], 0.0), np.where(off_v, withheld[1], 0.0)
    return state


def _run(state: PartState, chosen: BoolArray, options: Options) -> None:
    """Run the loop; where it is slow, let it test the solutions that proximal steps find."""
    patient = min(options.max_iter, MAX_LOOP_ITERATIONS)
    run_loop(state, chosen, options._replace(max_iter=patient))
    progress = state.problem.progress
    slow = chosen & (progress.outcome == ITERATING) & ~state.part.direct
    if patient == options.max_iter or state.out_of_time or not slow.any():
        return
    if options.adapt:
        left = (options.max_iter - patient) // 2
        steps = move_to_solution(state, slow, options._replace(max_iter=left))
        progress.iterations[slow] = patient + steps
        if steps > 0:  # the faces at the solution differ from those that the loop has left
            most = min(patient + steps + TESTS, options.max_iter)
            inner = UNTIL_SOLVED if options.max_inner_iter is None else options.max_inner_iter
            run_loop(state, slow, options._replace(max_iter=most, max_inner_iter=inner))
    run_loop(state, slow, options)


def _could_gain(state: PartState, withheld: tuple[FloatArray, FloatArray]) -> BoolArray:
    """Return the components whose withheld entries could be on in the best solution, by bounds."""
    forbidden = linear_bounds(state)
    state.withheld = withheld
    allowed = linear_bounds(state)
    state.withheld = None
    size = np.abs(np.where(np.isfinite(forbidden), forbidden, 0.0))
    could: BoolArray = allowed > forbidden + BOUND_TOLERANCE * np.maximum(1.0, size)
    return could


def hugely_negative(
    part: Part, eta: FloatArray, eta_v: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return the scores that serve as masks, 0 for all others; None without masks.

    Their entries are forbidden at first, because the steps of the loop scale with the scores. The
    bounds use the true scores and show whether this was right: a component may have large scores
    only.
    """
    if min(eta.min(initial=0.0), eta_v.min(initial=0.0)) >= -HUGE_RATIO:
        return None
    finite = np.where(np.isinf(eta), 0.0, eta)
    if not (any_large(finite) or (eta_v.size and any_large(eta_v))):
        return None
    split = Split(part, finite, eta_v)
    withheld = np.where(split.withheld, np.maximum(split.scores, -MASK_LIMIT), 0.0)
    return split.split_entries(withheld) if withheld.any() else None


def linear_bounds(state: PartState) -> FloatArray:
    """Return an upper bound on the score of any assignment, for every component.

    It is -inf if no assignment is allowed. The bound is the dual function of LP-MAP at the current
    duals, whichever problem they come from: the sum of the factors' maxima of ``<eta / degree +
    lambda, w> + <eta_N, n>``. It leaves out the scores of variables that are forced on. Duals of
    contradicting factors can be far larger than the scores, so the bound is raised by its rounding.
    """
    part, extras = state.part, state.problem.extras
    slots = state.slot_scores()
    if state.problem.quadratic != 0.0:
        slots -= state.problem.quadratic * part.shift
    slots /= part.delta
    eta_of_all, forbidden_of_all = extras.eta, extras.forbidden != 0
    if state.withheld is not None:
        off, off_v = state.withheld
        share = part.sign * (off / part.root_degree**2)[part.link_variable]
        slots = np.where(share != 0.0, share, slots)
        eta_of_all = np.where(off_v < 0.0, off_v, eta_of_all)
        forbidden_of_all &= off_v == 0.0
    bound, size = np.zeros((2, part.n_components))
    for bucket, _, links, additionals in (view[:4] for view in state.views):
        own = slots[links]
        eta_v, forbidden = eta_of_all[additionals], forbidden_of_all[additionals]
        w, n = best_feasible(bucket, own, eta_v, forbidden)
        forced, wanted = np.isinf(own), own > 0.0
        with np.errstate(over="ignore"):
            # a negated slot counts its variable's score if that is on, so that masks cancel exactly
            gain = np.where(forced, 0.0, own) * (w - bucket.negated)
            gain_v = np.where(forbidden, 0.0, eta_v * n)
        size += sums(bucket.component, bucket.sums(np.abs(gain), np.zeros_like(n)), len(size))
        # structures against forced slots, or with forbidden additionals
        gain[forced & (np.abs(w - wanted) > HELD)] = gain_v[forbidden & (n > HELD)] = -np.inf
        bound += sums(bucket.component, bucket.sums(gain, gain_v), len(bound))
    return bound + SUM_ROUNDING * size
