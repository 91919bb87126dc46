"""The best assignment by external solvers of whole graphs."""

from __future__ import annotations

import dataclasses
import math
import warnings

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
    score_assignment,
    stacklevel,
)
from lpsmap_decode.solvers.program import masked_bound, programs, with_masks
from lpsmap_decode.solvers.validation import check_answer, wrong_answer

__all__ = ["improve_with_solver", "unsolved_assignment", "merge_better"]

SOLVER_MARGIN = 1e-9
"""Safety margin of the bounds of solvers, relative to the sum of the absolute scores."""

SMALLEST_GAP = 1e-6
"""The smallest gap that a solver can prove, since its tolerances are of this size."""


def unsolved_assignment(graph: ScoredGraph, gap: float) -> Assignment:
    """Return an assignment without values, with infinite bounds."""
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


def improve_with_solver(
    assignment: Assignment, solver: MapSolver, limits: SearchLimits, share: float = 1.0
) -> Assignment:
    """Improve an assignment by an external solver in components without a proof of optimality.

    Parameters
    ----------
    assignment
        The assignment so far.
    solver, limits
        The solver, and when to stop.
    share
        The share of the remaining time for the solver.

    Raises
    ------
    ValueError
        If the solver does not support a component.
    RuntimeError
        If an answer is invalid, or scores more than its bound.

    Warns
    -----
    UserWarning
        If an answer violates the constraints of a factor; it is ignored.
    """
    found, left = _copied(assignment), limits.deadline.left
    own = limits._replace(deadline=Deadline(share * left, within=limits.deadline))
    part = found.layout.part
    components = np.flatnonzero(~found.proved & ~np.isnan(found.bound))
    given = found.layout, found.factors, found.scores, found.additional_scores
    candidate = np.nan_to_num(found.values[part.variables]) > 0.5
    chosen, bound = candidate.copy(), found.bound.copy()
    answered = np.zeros(len(bound), dtype=bool)
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
            candidate[mine], answered[c] = on[part.variables[mine]], True
    score = _scores(found, candidate)
    _judge_answers(solver, answered, score, bound)
    better = score > found.score
    chosen = np.where(better[part.component], candidate, chosen)
    found.score = np.where(better, score, found.score)
    # a bound below a feasible score is wrong, or rounded: discard it
    found.bound = np.where(bound < found.score, found.bound, np.minimum(bound, found.bound))
    _write(found, chosen)
    found.interrupted = limits.deadline.cut
    found.gap, found.solver = max(found.gap, SMALLEST_GAP), solver.name
    return found


def _judge_answers(
    solver: MapSolver, answered: BoolArray, score: FloatArray, bound: FloatArray
) -> None:
    """Raise for a bound below the score of the same answer, and warn of infeasible answers.

    Parameters
    ----------
    solver
        The solver.
    answered
        Components with an answer.
    score, bound
        For each component, the score of the answer by the oracles, and its bound.
    """
    allowed = SMALLEST_GAP * np.maximum(1.0, np.abs(np.where(np.isfinite(score), score, 0.0)))
    for c in np.flatnonzero(answered & (bound < score - allowed)).tolist():
        got = f"bound {bound[c]:g} with values that score {score[c]:g}, in component {c}"
        raise wrong_answer(solver, got, "an upper bound of the score of all assignments")
    infeasible = np.flatnonzero(answered & np.isneginf(score)).tolist()
    if infeasible:
        more = f" and {len(infeasible) - 1} more" if len(infeasible) > 1 else ""
        warnings.warn(
            f"solver {solver.name!r} returned values that violate the constraints of a factor in "
            f"component {infeasible[0]}{more}; they are ignored. Report it to the author of the "
            "solver, or solve with solver='lpsmap'.",
            stacklevel=stacklevel(),
        )


def _answer(program: Program, solver: MapSolver, limits: SearchLimits) -> Answer:
    """Return the answer of a solver; masked variables are allowed if it is infeasible without."""
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
    """Return the answer of a solver, with a safety margin on its bound."""
    left = limits.deadline.left
    given = SolverLimits(limits.gap, left if left < math.inf else None, limits.threads)
    try:
        with raised_by_ctrl_c():
            answer = check_answer(solver, program, solver.solve(program, given))
    except KeyboardInterrupt:
        return Answer(None, math.inf, interrupted=True)
    slack = SOLVER_MARGIN * (1.0 + float(np.abs(program.scores).sum()))
    return answer._replace(bound=answer.bound + slack)


def merge_better(found: Assignment, other: Assignment) -> None:
    """Merge the better components and bounds of another assignment of the same graph."""
    part, better = found.layout.part, other.score > found.score
    values = np.where(better[part.component], *(a.values[part.variables] for a in (other, found)))
    found.score = np.where(better, other.score, found.score)
    found.bound = np.maximum(np.minimum(found.bound, other.bound), found.score)
    found.interrupted |= other.interrupted
    _write(found, np.nan_to_num(values) > 0.0)


def _graph_of(found: Assignment) -> ScoredGraph:
    """Return the graph of an assignment; NaN bounds mark components with invalid scores."""
    given = found.scores, found.additional_scores, np.isnan(found.bound)
    return ScoredGraph(found.layout, found.factors, *given)


def _copied(assignment: Assignment) -> Assignment:
    """Return a copy of an assignment with writable arrays."""
    names = "values", "score", "bound", "n_nodes"
    arrays = {name: getattr(assignment, name).copy() for name in names}
    return dataclasses.replace(assignment, **arrays)


def _scores(found: Assignment, chosen: BoolArray) -> FloatArray:
    """Return the score of the assignment of every component, by the oracles of the factors."""
    part, bad = found.layout.part, np.isnan(found.bound)
    eta, eta_v = _graph_of(found).of_part()
    with Watch():
        scores, _ = score_assignment(part, eta, eta_v, chosen)
    return np.where(bad, -np.inf, scores)


def _write(found: Assignment, chosen: BoolArray) -> None:
    """Write the values and additionals of an assignment."""
    part = found.layout.part
    _, eta_v = _graph_of(found).of_part()
    with Watch():
        _, v = best_additionals(part, eta_v, chosen)
    found.values[part.variables] = np.where(found.found[part.component], chosen, np.nan)
    found.additionals = part.by_declaration(v, found.factors)
