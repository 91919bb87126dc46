"""The best assignment, by solvers of whole graphs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from lpsmap_core import Answer, Assignment, Deadline, MapSolver, Program, SolverLimits
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    ScoredGraph,
    SearchLimits,
    Watch,
    best_additionals,
    raised_by_ctrl_c,
    scored_assignment,
)
from lpsmap_decode.solvers.checked import check_answer
from lpsmap_decode.solvers.program import masked_bound, programs, with_masks

__all__ = ["hand_over", "nothing_known", "take_better"]

ROUNDING = 1e-9
"""Added to solvers' bounds, in units of the summed magnitudes of the scores."""

SMALLEST_GAP = 1e-6
"""What counts as proved by a solver at least: it compares up to tolerances of this size."""


def nothing_known(graph: ScoredGraph, gap: float) -> Assignment:
    """Return what is known before anything is solved."""
    layout, factors, n = graph.layout, graph.factors, graph.layout.n_components
    values = np.where(graph.scores > 0.0, 1.0, 0.0)  # of variables in no factor
    values[layout.component >= 0] = np.nan
    return Assignment(
        layout=layout,
        factors=factors,
        scores=graph.scores,
        additional_scores=graph.additional_scores,
        values=values,
        additionals=[np.zeros((f.n_factors, f.n_additionals)) for f in factors],
        score=np.full(n, -np.inf),
        bound=np.where(graph.non_finite, np.nan, np.inf),
        n_nodes=np.zeros(n, dtype=np.int64),
        gap=gap,
    )


def hand_over(
    assignment: Assignment, solver: MapSolver, limits: SearchLimits, share: float = 1.0
) -> Assignment:
    """Return an assignment with all that a solver finds where it is not proved the best.

    Parameters
    ----------
    assignment
        What is known.
    solver, limits
        Who looks for more, and when to stop.
    share
        Of the time that is left, what it may take.

    Raises
    ------
    ValueError
        If the solver refuses a component.
    """
    found, left = _copied(assignment), limits.deadline.left
    own = limits._replace(deadline=Deadline(share * left, within=limits.deadline))
    part = found.layout.part
    components = np.flatnonzero(~found.proved & ~np.isnan(found.bound))
    given = found.layout, found.factors, found.scores, found.additional_scores
    candidate = np.nan_to_num(found.values[part.variables]) > 0.5
    chosen, bound = candidate.copy(), found.bound.copy()
    for c, program in zip(components.tolist(), programs(*given, components), strict=True):
        refusal = solver.refuses(program)
        if refusal:
            raise ValueError(f"solver: {refusal}")
        if own.deadline.passed:
            break
        answer = _answer(program, solver, own)
        if answer.interrupted:
            limits.deadline.end()
        found.n_nodes[c] += answer.n_nodes
        bound[c] = answer.bound
        if answer.values is not None:
            on = np.zeros(found.layout.n_variables, dtype=bool)
            on[program.variables] = answer.values > 0.5
            mine = slice(*part.first_variable[c : c + 2].tolist())
            candidate[mine] = on[part.variables[mine]]
    score = _scores(found, candidate)
    better = score > found.score
    chosen = np.where(better[part.component], candidate, chosen)
    found.score = np.where(better, score, found.score)
    # a bound below what the oracles allow is wrong, and none
    found.bound = np.where(bound < found.score, found.bound, np.minimum(bound, found.bound))
    _write(found, chosen)
    found.interrupted = limits.deadline.cut
    found.gap, found.solver = max(found.gap, SMALLEST_GAP), solver.name
    return found


def _answer(program: Program, solver: MapSolver, limits: SearchLimits) -> Answer:
    """Return what a solver finds in a program; masks count where nothing can do without."""
    answer = _solved(program, solver, limits)
    masked = masked_bound(program)
    if answer.bound == -math.inf and masked > -math.inf:
        counting = with_masks(program)
        if counting is None or limits.deadline.passed:
            return Answer(None, masked, answer.n_nodes)
        answer, n_before = _solved(counting.program, solver, limits), answer.n_nodes
        answer = answer._replace(
            bound=counting.bound(answer.bound), n_nodes=n_before + answer.n_nodes
        )
        masked = min(masked, answer.bound)
    return answer._replace(bound=max(answer.bound, masked))


def _solved(program: Program, solver: MapSolver, limits: SearchLimits) -> Answer:
    """Return what a solver finds, its bound with what rounding may hide."""
    left = limits.deadline.left
    given = SolverLimits(limits.gap, left if left < math.inf else None, limits.threads)
    try:
        with raised_by_ctrl_c():
            answer = check_answer(solver, program, solver.solve(program, given))
    except KeyboardInterrupt:
        return Answer(None, math.inf, interrupted=True)
    slack = ROUNDING * (1.0 + float(np.abs(program.scores).sum()))
    return answer._replace(bound=answer.bound + slack)


def take_better(found: Assignment, other: Assignment) -> None:
    """Take from another assignment of the same graph what is better, and its bounds."""
    part, better = found.layout.part, other.score > found.score
    values = np.where(better[part.component], *(a.values[part.variables] for a in (other, found)))
    found.score = np.where(better, other.score, found.score)
    found.bound = np.maximum(np.minimum(found.bound, other.bound), found.score)
    found.interrupted |= other.interrupted
    _write(found, np.nan_to_num(values) > 0.0)


def _graph_of(found: Assignment) -> ScoredGraph:
    """Return the graph of an assignment; bounds that are NaN are those of bad scores."""
    given = found.scores, found.additional_scores, np.isnan(found.bound)
    return ScoredGraph(found.layout, found.factors, *given)


def _copied(assignment: Assignment) -> Assignment:
    """Return an assignment whose arrays may be written."""
    names = "values", "score", "bound", "n_nodes"
    arrays = {name: getattr(assignment, name).copy() for name in names}
    return dataclasses.replace(assignment, **arrays)


def _scores(found: Assignment, chosen: BoolArray) -> FloatArray:
    """Return what every component's assignment scores, by the factors' own oracles."""
    part, bad = found.layout.part, np.isnan(found.bound)
    eta, eta_v = _graph_of(found).of_part()
    with Watch():
        scores, _ = scored_assignment(part, eta, eta_v, chosen)
    return np.where(bad, -np.inf, scores)


def _write(found: Assignment, chosen: BoolArray) -> None:
    """Write an assignment's values, and its additionals."""
    part = found.layout.part
    _, eta_v = _graph_of(found).of_part()
    with Watch():
        _, v = best_additionals(part, eta_v, chosen)
    found.values[part.variables] = np.where(found.found[part.component], chosen, np.nan)
    found.additionals = part.by_declaration(v, found.factors)
