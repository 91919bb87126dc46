"""Solve a graph with a layout: separate invalid scores, run the engine, build the Solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lpsmap_core.engine.choice import AUTO, choose_engine
from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import Options, checked_options
from lpsmap_core.engine.protocol import Engine, SolvedGraph, WarmStart
from lpsmap_core.engine.shared_engine import solve_validated
from lpsmap_core.engine.status import Status, Statuses
from lpsmap_core.engine.step_size import first_step_sizes
from lpsmap_core.layout.layout import Layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.unused import are_scores, zero_unused_scores
from lpsmap_core.plugins.registry import installed
from lpsmap_core.solution.decoder import Relaxation, ScoredGraph
from lpsmap_core.solution.dominant_scores import reduce_dominant_scores
from lpsmap_core.solution.solution import Solution
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.deadlines import Deadline
from lpsmap_jit.interrupts import Watch

__all__ = ["check_options", "scored_graph", "solve_laid_out", "solve_linear_from"]

OTHER_OPTIONS = (
    *("engine", "verbose", "warm_start"),
    *("exact", "autodetect_acyclic", "progress", "gap", "max_nodes", "solver"),
)
"""Options of a graph's verbs that `checked_options` does not know."""


def check_options(options: Mapping[str, Any]) -> None:
    """Validate options of `FactorGraph.solve` or `solve_map` by value, without a solve.

    Starts and options of a search are left out.

    Parameters
    ----------
    options
        The options by name.

    Raises
    ------
    TypeError
        If an option has a wrong type.
    ValueError
        If an option is out of range, or the engine is unknown.
    """
    checked_options(
        **{"threads": None, **{k: x for k, x in options.items() if k not in OTHER_OPTIONS}}
    )
    if options.get("engine", AUTO) != AUTO:
        installed().engines.named(options["engine"], "engine", AUTO)


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
        (n_variables,) scores; ``-inf`` forbids a variable. Those of padding are replaced by -inf,
        NaN and +inf by zeros where factors do not use them, see `zero_unused_scores`.
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
    part, scores = layout.part, _without_padding(layout, scores)
    eta, eta_v = part.of_graph(scores), part.by_bucket(additionals, factors, engine.keeps_scores)
    bad = np.zeros(layout.n_components, dtype=np.bool_)
    finite = are_scores(scores) and all(are_scores(x.reshape(-1)) for x in additionals if x.size)
    if not finite:
        additionals = zero_unused_scores(factors, scores, additionals)
        eta, eta_v = part.of_graph(scores), part.by_bucket(additionals, factors)
        bad = _non_finite_components(layout, factors, scores, additionals)
        eta = np.where(bad[part.component], 0.0, eta)
        eta_v = np.where(bad[part.additional_component], 0.0, eta_v)
    if not options.quadratic:
        eta, eta_v, _ = reduce_dominant_scores(part, eta, eta_v)
    solved = solve_validated(engine, part, eta, eta_v, bad, options, warm)
    solution = _gather(layout, factors, scores, additionals, solved, options)
    if not finite:
        solution.status[bad] = Status.NON_FINITE
        solution.values[np.isin(layout.component, np.flatnonzero(bad))] = np.nan
        nu = np.where(bad[part.additional_component], np.nan, solved.additionals())
        solution.additionals = part.by_declaration(nu, factors)
    if options.trace:
        solution.trace = solved.trace()
    return solution


def solve_linear_from(relaxation: Relaxation, options: Options) -> Relaxation:
    """Solve LP-MAP for the scores of a relaxed solution, starting at its duals and faces.

    Engines other than core's start anew.

    Parameters
    ----------
    relaxation
        A solution with the quadratic term.
    options
        Options of LP-MAP.
    """
    graph = relaxation.graph
    engine = choose_engine(AUTO, graph.layout.part, options).engine
    start = relaxation.solved.end() if isinstance(engine, CompiledEngine) else None
    if start is not None:
        part = graph.layout.part
        sizes = first_step_sizes(part.first_variable, part.direct, graph.of_part()[0], options)
        start = start._replace(step_size=sizes, first_step_size=sizes)
    given = graph.factors, graph.scores, graph.additional_scores
    with Watch(within=Deadline(options.max_time, options.within)):
        return solve_laid_out(engine, graph.layout, *given, options, start).relaxation


def scored_graph(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additionals: Sequence[FloatArray],
) -> ScoredGraph:
    """Return the input of a decoder; the arguments are those of `solve_laid_out`."""
    scores = _without_padding(layout, scores)
    additionals = zero_unused_scores(factors, scores, additionals)
    bad = _non_finite_components(layout, factors, scores, additionals)
    return ScoredGraph(layout, factors, scores, additionals, bad)


def _without_padding(layout: Layout, scores: FloatArray) -> FloatArray:
    """Return scores that forbid the variables beyond lengths."""
    if layout.padding.size:
        scores = scores.copy()
        scores[layout.padding] = -np.inf
    return scores


def _non_finite_components(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additionals: Sequence[FloatArray],
) -> BoolArray:
    """Return for each component whether one of its scores is NaN or +inf."""
    wrong = np.isnan(scores) | (scores == np.inf)
    components = layout.component[wrong]
    bad = np.zeros(layout.n_components, dtype=np.bool_)
    bad[components[components >= 0]] = True
    position = {id(factor): i for i, factor in enumerate(factors)}
    for bucket in layout.buckets:
        for d, factor in enumerate(bucket.declarations):
            values = additionals[position[id(factor)]]
            wrong_rows = ~(values.max(axis=1, initial=-np.inf) < np.inf)
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
    solved: SolvedGraph,
    options: Options,
) -> Solution:
    """Collect the results in the graph's order."""
    part = layout.part
    values = solved.marginals()
    if not part.whole:
        # variables in no factor
        t = solved.quadratic
        best = np.clip(scores, 0.0, t) / t if t else np.where(scores > 0.0, 1.0, 0.0)
        best[~(scores < np.inf)] = np.nan
        best[part.variables] = values
        values = best
    return Solution(
        layout=layout,
        factors=factors,
        solved=solved,
        scores=scores,
        values=values,
        additionals=part.by_declaration(solved.additionals(), factors),
        status=solved.status().view(Statuses),
        iterations=solved.iterations,
        primal_residual=solved.primal_residual,
        dual_residual=solved.dual_residual,
        additional_scores=additionals,
        threads=options.threads,
        max_time=options.max_time,
    )
