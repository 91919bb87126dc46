"""Solve a graph with a layout: separate invalid scores, run the engine, build the Solution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lpsmap_core.engine.choice import solve_validated
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import Engine, SolvedGraph, WarmStart
from lpsmap_core.engine.status import Status, Statuses
from lpsmap_core.layout.layout import Layout, Part
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.score_magnitude import are_scores
from lpsmap_core.solution.dominant_scores import reduce_dominant_scores
from lpsmap_core.solution.scored_graph import scored_graph
from lpsmap_core.solution.solution import Solution
from lpsmap_jit.arrays import FloatArray


def solve_laid_out(
    engine: Engine,
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additionals: Sequence[FloatArray],
    options: Options,
    warm: WarmStart | None = None,
) -> Solution:
    """Solve a graph for given scores.

    Parameters
    ----------
    engine
        The engine.
    layout
        The graph's layout.
    factors
        The declarations of the layout.
    scores
        (n_variables,) scores; ``-inf`` forbids a variable. NaN and +inf are replaced by zeros where
        factors do not use them, see `zero_unused_scores`.
    additionals
        For every declaration the (n_factors, n_additionals) scores of its additionals; ``-inf``
        forbids.
    options
        Limits and settings.
    warm
        Initial point.

    Returns
    -------
    Solution
        Components with a score that is NaN or ``+inf`` have NaN values and status ``NON_FINITE``.
    """
    part = layout.part
    eta, eta_v = part.of_graph(scores, copy=False), part.by_bucket(additionals, factors)
    bad = np.zeros(layout.n_components, dtype=np.bool_)
    finite = are_scores(scores) and are_scores(eta_v)
    if not finite:
        graph = scored_graph(layout, factors, scores, additionals)
        additionals, bad = graph.additional_scores, graph.non_finite
        eta, eta_v = graph.of_part()
    if not options.quadratic:
        eta, eta_v, _ = reduce_dominant_scores(part, eta, eta_v)
    solved = solve_validated(engine, part, eta, eta_v, bad, options, warm)
    solution = Solution(
        layout=layout,
        factors=factors,
        solved=solved,
        scores=scores,
        values=_values(part, scores, solved),
        status=solved.status().view(Statuses),
        iterations=solved.iterations,
        primal_residual=solved.primal_residual,
        dual_residual=solved.dual_residual,
        additional_scores=additionals,
        threads=options.threads,
        max_time=options.max_time,
        trace=solved.trace() if options.trace else None,
    )
    if not finite:
        solution.status[bad] = Status.NON_FINITE
        solution.values[np.isin(layout.component, np.flatnonzero(bad))] = np.nan
        nu = np.where(part.on_additionals(bad), np.nan, solved.additionals())
        solution.additionals = part.by_declaration(nu, factors)
    return solution


def _values(part: Part, scores: FloatArray, solved: SolvedGraph) -> FloatArray:
    """Return the marginals in the graph's order, with those of variables in no factor."""
    if part.whole:
        return solved.marginals()
    t = solved.quadratic
    values = np.clip(scores, 0.0, t) / t if t else np.where(scores > 0.0, 1.0, 0.0)
    values[~(scores < np.inf)] = np.nan
    values[part.variables] = solved.marginals()
    return values
