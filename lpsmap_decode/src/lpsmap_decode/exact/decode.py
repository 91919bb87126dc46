"""From a relaxed solution to an assignment of all variables, with bounds."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from lpsmap_core import CompiledEngine, Deadline, Options, Solution, SolvedGraph
from lpsmap_core.api import (
    AUTO,
    BoolArray,
    FloatArray,
    Part,
    WarmStart,
    Watch,
    choose_engine,
    first_step_sizes,
    reduce_dominant_scores,
    solve_laid_out,
)
from lpsmap_decode.exact.component_search import decode_part
from lpsmap_decode.exact.far_scores import in_given_scale
from lpsmap_decode.results.assignment import Assignment, assignment_of
from lpsmap_decode.results.assignment_score import score_assignment
from lpsmap_decode.results.score_units import in_units, is_proved
from lpsmap_decode.results.search_limits import (
    Report,
    SearchLimits,
    SearchProgress,
    options_for_search,
)

__all__ = ["decode"]

ROUNDING_GRACE = 0.1
"""Minimum seconds for one attempt at every component without an assignment."""


MAX_ITERATIONS = 200
"""Maximum number of iterations of LP-MAP before a search, which bounds the last few components of a
batch faster."""

MIN_STEP_SIZE = 0.075
"""Minimum first step size of LP-MAP, of scores of about 0.3, for a start at the duals of a solution
with the quadratic term. These are differences of marginals, which can be far larger than scores:
trees with budgets took 200 iterations from there at a scale of 0.001, and 59 from zero."""


MIN_UNIT = 1e-4
"""Minimum unit of scores for bounds of a solution with the quadratic term. Its duals are around 1,
so that their sums with small scores lose the digits of these."""


class _Rounded(NamedTuple):
    """An assignment of the variables of a part, and a bound on all others."""

    chosen: BoolArray
    score: FloatArray
    """For each component; ``-inf`` where the assignment is not allowed."""
    v: FloatArray
    """The best additionals."""
    bound: FloatArray
    """For each component; NaN where a score is NaN or ``+inf``."""

    def better(self, other: _Rounded, part: Part) -> _Rounded:
        """Return the better of two assignments of each component, and the lower bound."""
        other_is = other.score > self.score
        return _Rounded(
            np.where(other_is[part.component], other.chosen, self.chosen),
            np.where(other_is, other.score, self.score),
            np.where(part.on_additionals(other_is), other.v, self.v),
            np.fmin(self.bound, other.bound),
        )


def decode(
    relaxation: Solution, limits: SearchLimits, earlier: Assignment | None = None
) -> Assignment:
    """Round a relaxed solution, and search the components where that is not proved optimal.

    Bounds are those of LP-MAP. If the solution has the quadratic term, LP-MAP is solved from there,
    for all components together.

    Parameters
    ----------
    relaxation
        The solution.
    limits
        When to stop.
    earlier
        An assignment with bounds from which to continue, of a graph without rescaled scores.
    """
    graph = relaxation.graph
    part, bad = graph.layout.part, graph.non_finite
    given = graph.of_part()
    eta, eta_v, far = reduce_dominant_scores(part, *given)
    unit, eta, eta_v = in_units(part, eta, eta_v)
    linear = _linear_from(relaxation, limits) if relaxation.solved.quadratic else relaxation
    with Watch():
        known = _round(linear, eta, eta_v, unit, far)
        doubtful = ~(is_proved(known.score, known.bound, limits.gap) | bad)
        if relaxation.solved.quadratic and doubtful.any():
            known = known.better(_round(relaxation, eta, eta_v, unit, far), part)
        if earlier is not None and not far.any():
            # unknown variables are off
            on = (np.nan_to_num(earlier.values[part.variables]) > 0.0) & ~np.isneginf(eta)
            scored = score_assignment(part, eta, eta_v, on)
            known = known.better(_Rounded(on, *scored, earlier.bound / unit), part)
    chosen, score, v, bound = known
    means = np.where(bad[part.component], 0.0, relaxation.values[part.variables])
    until = Deadline(ROUNDING_GRACE) if limits.deadline.left < ROUNDING_GRACE else limits.deadline
    reporting = limits._replace(report=_in_given_unit(limits.report, unit))
    with Watch(within=until):
        start = functools.partial(_start, linear.solved, unit)
        found = decode_part(part, eta, eta_v, means, chosen, score, bound, reporting, start)
    if (found.chosen != chosen).any():
        with Watch():  # the oracles of the factors decide the final scores
            score, v = score_assignment(part, eta, eta_v, found.chosen)
    score = unit * np.where(bad | np.isneginf(found.score), -np.inf, score)
    assignment = found.chosen, v, score, unit * found.bound
    score, bound = in_given_scale(part, given, far, *assignment, limits.gap)
    bound, n_nodes = np.maximum(bound, score), found.n_nodes
    decoded = assignment_of(graph, found.chosen, v, score, bound, n_nodes, limits.gap)
    decoded.interrupted = found.interrupted or limits.deadline.cut
    return decoded


def _linear_from(relaxation: Solution, limits: SearchLimits) -> Solution:
    """Return the solution of LP-MAP, which starts at the duals of one with the quadratic term.

    Engines other than core's start anew, and so do components of small scores.
    """
    left = limits.deadline.left
    max_time = left if left < np.inf else None
    linear = Options(threads=limits.threads, quadratic=0.0, max_time=max_time)
    if limits.max_nodes != 0:
        linear = linear._replace(max_iter=MAX_ITERATIONS)
    options, part = options_for_search(linear, limits), relaxation.layout.part
    engine = choose_engine(AUTO, part, options).engine
    start = relaxation.solved.end() if isinstance(engine, CompiledEngine) else None
    if start is not None:
        sizes = first_step_sizes(part, part.direct, *relaxation.graph.of_part(), options)
        known = start.known & (sizes >= MIN_STEP_SIZE)
        start = start._replace(step_size=sizes, first_step_size=sizes, known=known)
    layout, factors, scores, additionals, _ = relaxation.graph
    with Watch(within=Deadline(options.max_time, options.within)):
        return solve_laid_out(engine, layout, factors, scores, additionals, options, start)


def _start(solved: SolvedGraph, unit: FloatArray) -> WarmStart | None:
    """Return the end of a relaxation as a start; components of small scores start anew."""
    end = solved.end()
    return None if end is None else end._replace(known=end.known & (unit == 1.0))


def _in_given_unit(report: Report | None, unit: FloatArray) -> Report | None:
    """Return a function that reports progress in units of the given scores."""
    if report is None:
        return None

    def converted(c: int, progress: SearchProgress) -> None:
        score, bound = unit[c] * progress.score, unit[c] * progress.bound
        report(c, dataclasses.replace(progress, score=score, bound=bound))

    return converted


def _round(
    relaxation: Solution, eta: FloatArray, eta_v: FloatArray, unit: FloatArray, far: BoolArray
) -> _Rounded:
    """Round the marginals of a relaxed solution, for scores in their unit.

    If it has the quadratic term, it has no bounds where scores are small, or where `far` ones were
    reduced; LP-MAP reduces them itself.
    """
    graph, values, solved = relaxation.graph, relaxation.values, relaxation.solved
    part, bad = graph.layout.part, graph.non_finite
    means = np.where(bad[part.component], 0.0, values[part.variables])
    chosen = (means > 0.5) & ~np.isneginf(eta)
    bound = np.where(bad, np.nan, _bounds_of(solved, bad) / unit)
    if solved.quadratic:
        bound[far | (unit < MIN_UNIT)] = np.inf
    return _Rounded(chosen, *score_assignment(part, eta, eta_v, chosen), bound)


def _bounds_of(solved: SolvedGraph, bad: BoolArray) -> FloatArray:
    """Return upper bounds on all assignments, by component; those of `bad` components may be NaN.

    Raises
    ------
    RuntimeError
        If the engine returned anything else.
    """
    bound = np.asarray(solved.assignment_bound(), dtype=np.float64)
    if bound.shape != bad.shape or (np.isnan(bound) & ~bad).any():
        name = f"{type(solved).__module__}.{type(solved).__qualname__}"
        raise RuntimeError(
            f"{name}.assignment_bound returned {bound!r:.80}; expected {len(bad)} numbers, inf for "
            "unknown bounds. This is a bug of the engine, not of the scores: report it to its "
            "author, and solve with engine='auto'."
        )
    return bound
