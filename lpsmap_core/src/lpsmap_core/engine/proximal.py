"""LP-MAP by proximal points: the exact solution where the loop without the quadratic term is slow.

A proximal step solves LP-SparseMAP at scores ``s eta + mu_k``, whose solution mu_{k+1} is the
maximum of ``s <eta, mu> - 1/2 ||mu - mu_k||^2``, and whose faces the polish finds. After finitely
many steps mu no longer moves, and is a solution of LP-MAP (Rockafellar 1976; Bertsekas 1975). The
duals divided by s prove it: at a point that reproduces itself the quadratic terms cancel. The scale
s grows with every step. Large scales need few steps, and small ones have fewer faces to search.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.admm import solve_part
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.polish import MAX_POLISHED_LINKS
from lpsmap_core.engine.protocol import WarmStart
from lpsmap_core.engine.state import PartState
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.engine.stopping import CONVERGED
from lpsmap_jit.arrays import BoolArray, FloatArray

FIRST_MAGNITUDE, GROWTH = 300.0, 5.0
"""Largest score of the first step, and the factor by which it grows with every step."""

MAX_STEPS = 8
"""Maximum number of steps; scores then have 7 digits before those of the marginals."""

MIN_LARGEST = 1e-280
"""Components with smaller scores have none that could be scaled up."""

WEAK, MAX_WEAK_SHARE = 1e-3, 0.25
"""Scores below a fraction of the largest are weak. Components with a larger share of them, such as
those beside masks, are left to the loop: no scale suits both."""

FIXED = 1e-7
"""Marginals that move by less reproduce themselves."""


def move_to_solution(state: PartState, chosen: BoolArray, options: Options) -> int:
    """Move components to solutions of LP-MAP, from where the loop tests and certifies them.

    Components that a step does not solve stay where they are.

    Parameters
    ----------
    state
        The state of LP-MAP.
    chosen
        The components.
    options
        Those of LP-MAP; `max_iter` bounds the iterations of all steps together.

    Returns
    -------
    int
        The largest number of iterations of a component.
    """
    part, problem = state.part, state.problem
    (eta, eta_v), left = state.given_scores(), options.max_iter
    largest = problem.progress.largest_score
    running = chosen & (part.sizes <= MAX_POLISHED_LINKS) & (largest >= MIN_LARGEST)
    magnitude = np.abs(problem.iterate.eta) / np.maximum(largest, MIN_LARGEST)[part.component]
    weak = (magnitude > 0.0) & (magnitude < WEAK)
    n_weak = np.bincount(part.component, weak, part.n_components)
    running &= n_weak <= MAX_WEAK_SHARE * np.diff(part.first_variable)
    scale = np.where(running, FIRST_MAGNITUDE / np.maximum(largest, MIN_LARGEST), 1.0)
    mu, duals, faces = state.marginals(), problem.iterate.duals * _on_links(state, scale), state
    for _ in range(MAX_STEPS):
        if not running.any() or left <= 0:
            break
        scores = scale[part.component] * eta + mu, part.on_additionals(scale) * eta_v
        quadratic = options._replace(quadratic=1.0, max_iter=left)
        step_size = first_step_sizes(part, part.direct, *scores, quadratic)
        start = WarmStart(mu / part.root_degree, duals, step_size, running, None, faces)
        faces = solve_part(part, *scores, ~running, quadratic, start)
        n = int(faces.problem.progress.iterations[running].max())
        if len(state.trace):
            begin = int(problem.progress.iterations[running].max()) + options.max_iter - left
            state.trace[begin : begin + n, :, running] = faces.trace[:n, :, running]
        left -= n
        running &= faces.problem.progress.outcome == CONVERGED
        moved, means = np.zeros(part.n_components), faces.marginals()
        np.maximum.at(moved, part.component, np.abs(means - mu))
        _adopt(state, faces, running, scale)
        running &= moved > FIXED
        growth = np.where(running, GROWTH, 1.0)
        mu, scale = means, scale * growth
        duals = faces.problem.iterate.duals * _on_links(state, growth)
    return options.max_iter - left


def _adopt(state: PartState, solved: PartState, chosen: BoolArray, scale: FloatArray) -> None:
    """Take the means and duals of a step for some components."""
    ours, theirs, part = state.problem.iterate, solved.problem.iterate, state.part
    np.copyto(ours.u, theirs.u, where=chosen[part.component])
    taken = np.repeat(chosen[part.component], np.diff(part.variable_offsets))
    np.copyto(ours.duals, theirs.duals / _on_links(state, scale), where=taken)
    state.problem.progress.stale[chosen] = True


def _on_links(state: PartState, values: FloatArray) -> FloatArray:
    """Return the value of its component for each link, in the order of the variables."""
    part = state.part
    return np.repeat(values[part.component], np.diff(part.variable_offsets))
