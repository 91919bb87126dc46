"""From a relaxed solution to an assignment of all variables, with bounds."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Deadline, SolvedGraph
from lpsmap_core.api import BoolArray, FloatArray, Relaxation, Watch, reduce_dominant_scores
from lpsmap_decode.exact.component_search import decode_part
from lpsmap_decode.exact.far_scores import in_given_scale
from lpsmap_decode.results.assignment import Assignment
from lpsmap_decode.results.assignment_score import score_assignment
from lpsmap_decode.results.search_limits import SearchLimits

__all__ = ["decode"]

ROUNDING_GRACE = 0.1
"""Minimum seconds for one attempt at every component without an assignment."""


def decode(
    relaxation: Relaxation, limits: SearchLimits, known: Assignment | None = None
) -> Assignment:
    """Round a relaxed solution, and search the components where that is not proved optimal.

    Parameters
    ----------
    relaxation
        The solution.
    limits
        When to stop.
    known
        An assignment with bounds from which to continue, of a graph without rescaled scores.
    """
    graph, values, solved = relaxation
    part, bad = graph.layout.part, graph.non_finite
    given = eta, eta_v = graph.of_part()
    eta, eta_v, far = reduce_dominant_scores(part, eta, eta_v)
    means = np.where(bad[part.component], 0.0, values[part.variables])
    chosen = (means > 0.5) & ~np.isneginf(eta)
    linear = solved.quadratic == 0.0
    with Watch():
        bound = np.where(bad, np.nan, _bounds_of(solved, bad))
        if not linear:  # LP-MAP solved the scores as given
            bound[far] = np.inf
        if known is not None and not far.any():
            values = known.values[part.variables]
            chosen = np.where(np.isnan(values), chosen, values > 0.0)
            bound = np.minimum(bound, known.bound)
        score, v = score_assignment(part, eta, eta_v, chosen)
    until = Deadline(ROUNDING_GRACE) if limits.deadline.left < ROUNDING_GRACE else limits.deadline
    with Watch(within=until):
        start = solved.end if linear else lambda: None
        found = decode_part(part, eta, eta_v, means, chosen, score, bound, limits, start)
    if (found.chosen != chosen).any():
        with Watch():  # the oracles of the factors decide the final scores
            score, v = score_assignment(part, eta, eta_v, found.chosen)
    score = np.where(bad | np.isneginf(found.score), -np.inf, score)
    score, bound = in_given_scale(part, given, far, found.chosen, v, score, found.bound, limits.gap)
    assigned = np.where(graph.scores > 0.0, 1.0, 0.0)  # of variables in no factor
    assigned[part.variables] = np.where((score > -np.inf)[part.component], found.chosen, np.nan)
    return Assignment(
        layout=graph.layout,
        factors=graph.factors,
        scores=graph.scores,
        additional_scores=graph.additional_scores,
        values=assigned,
        additionals=part.by_declaration(v, graph.factors),
        score=score,
        bound=np.maximum(bound, score),
        n_nodes=found.n_nodes,
        gap=limits.gap,
        interrupted=found.interrupted or limits.deadline.cut,
    )


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
