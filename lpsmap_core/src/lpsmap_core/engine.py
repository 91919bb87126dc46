"""Solve a laid-out graph: set bad scores apart, run the parts in threads, gather a Solution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lpsmap_core.admm import solve_part
from lpsmap_core.factor import Factor
from lpsmap_core.infeasible import find_violations
from lpsmap_core.layout import Layout, Part, ranges
from lpsmap_core.solution import Solution, Status
from lpsmap_core.state import Options, PartState
from lpsmap_core.threads import in_threads
from lpsmap_core.warm_start import GraphStart

__all__ = ["solve"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def solve(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additionals: Sequence[FloatArray],
    options: Options,
    warm: GraphStart | None = None,
) -> Solution:
    """Solve a graph for given scores.

    Parameters
    ----------
    layout
        The graph's layout.
    factors
        Its declarations, as laid out.
    scores
        (n_variables,) scores; ``-inf`` forbids a variable.
    additionals
        For every declaration the (n_factors, n_additionals) scores of its additionals; ``-inf``
        forbids.
    options
        Limits and settings.
    warm
        Where to start from.

    Returns
    -------
    Solution
        Components with a score that is NaN or ``+inf`` have NaN values and status ``NON_FINITE``.
    """
    bad = _non_finite_components(layout, factors, scores, additionals)
    position = {id(factor): i for i, factor in enumerate(factors)}

    def run(part: Part) -> PartState:
        skip = bad[part.components]
        eta = np.where(skip[part.component], 0.0, scores[part.variables])
        eta_v = []
        for bucket in part.buckets:
            flat = bucket.scores([additionals[position[id(f)]] for f in bucket.declarations])
            if flat.size:
                entries = ranges(bucket.additional_offsets, np.flatnonzero(skip[bucket.component]))
                flat[entries] = 0.0
            eta_v.append(flat)
        start = None if warm is None else warm.of_part(layout, part)
        state = solve_part(part, eta, eta_v, skip, options, start)
        find_violations(state)
        return state

    states = in_threads(run, layout.parts)
    solution = _gather(layout, factors, scores, additionals, states, bad)
    if options.trace:
        solution.trace = _trace(states, layout.n_components)
    return solution


def _non_finite_components(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additionals: Sequence[FloatArray],
) -> BoolArray:
    """Return for each component whether a score of it is NaN or +inf."""
    bad = np.zeros(layout.n_components, dtype=bool)
    wrong = np.isnan(scores) | (scores == np.inf)
    if wrong.any():
        components = layout.component[wrong]
        bad[components[components >= 0]] = True
    position = {id(factor): i for i, factor in enumerate(factors)}
    for bucket in layout.buckets:
        for d, factor in enumerate(bucket.declarations):
            values = additionals[position[id(factor)]]
            wrong_rows = ~(values.max(axis=1, initial=-np.inf) < np.inf)  # a NaN is not less
            if wrong_rows.any():
                of_row = np.empty(factor.n_factors, dtype=np.int64)
                mine = bucket.declaration == d
                of_row[bucket.row[mine]] = bucket.component[mine]
                bad[of_row[wrong_rows]] = True
    return bad


def _gather(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additionals: Sequence[FloatArray],
    states: list[PartState],
    bad: BoolArray,
) -> Solution:
    """Collect the parts' results in the graph's order."""
    n = layout.n_components
    free = layout.component < 0
    values = np.where(free, np.where(scores == np.inf, np.nan, np.clip(scores, 0.0, 1.0)), np.nan)
    nus = [np.zeros(x.shape) for x in additionals]
    status = np.full(n, Status.SOLVED, dtype=object)
    iterations = np.zeros(n, dtype=np.int64)
    primal, dual = np.zeros(n), np.zeros(n)
    position = {id(factor): i for i, factor in enumerate(factors)}
    for state in states:
        part = state.part
        progress = state.problem.progress
        values[part.variables] = state.marginals()
        for b, bucket in enumerate(part.buckets):
            v = state.problem.extras.v[state.additionals_of(b)]
            bucket.distribute(v, [nus[position[id(f)]] for f in bucket.declarations])
        iterations[part.components] = progress.iterations
        primal[part.components] = progress.primal
        dual[part.components] = progress.change
        status[part.components] = _status(state)
    status[bad] = Status.NON_FINITE
    if bad.any():
        values[np.isin(layout.component, np.flatnonzero(bad))] = np.nan
    return Solution(
        layout=layout,
        factors=factors,
        parts=states,
        scores=scores,
        values=values,
        additionals=nus,
        status=status,
        iterations=iterations,
        primal_residual=primal,
        dual_residual=dual,
        additional_scores=additionals,
    )


def _trace(states: list[PartState], n_components: int) -> FloatArray:
    """Return the parts' residuals side by side, a finished component's as they last were."""
    longest = max((int(s.problem.progress.iterations.max()) for s in states), default=0)
    trace = np.zeros((longest, 2, n_components))
    for state in states:
        progress = state.problem.progress
        last = np.stack([progress.primal, progress.change])
        kept = state.trace[:longest]
        trace[:, :, state.part.components] = np.where(np.isnan(kept), last, kept)
    return trace


def _status(state: PartState) -> npt.NDArray[np.object_]:
    """Return the status of every component of a part with finite scores."""
    part, progress = state.part, state.problem.progress
    limit = Status.TIME_LIMIT if state.out_of_time else Status.ITERATION_LIMIT
    status = np.full(part.n_components, limit, dtype=object)
    status[progress.converged] = Status.CONVERGED
    status[state.exact()] = Status.SOLVED
    status[progress.unsolved & part.direct] = Status.INNER_ITERATION_LIMIT
    status[progress.infeasible] = Status.INFEASIBLE
    return status
