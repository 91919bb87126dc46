"""The best assignment by external solvers of whole graphs."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from lpsmap_core import Deadline
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    ScoredGraph,
    Watch,
    raised_by_ctrl_c,
    stacklevel,
)
from lpsmap_decode.results.assignment import Assignment, assignment_of
from lpsmap_decode.results.assignment_score import score_assignment
from lpsmap_decode.results.score_units import unit_of
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.solvers.map_solver import Answer, MapSolver, Program, SolverLimits
from lpsmap_decode.solvers.program import as_given, masked_bound, programs, with_masks
from lpsmap_decode.solvers.validation import check_answer, wrong_answer
from lpsmap_dynamic import best_additionals

__all__ = [
    "MIN_GAP",
    "improve_with_solver",
    "merge_better",
    "solver_answer",
    "unproved_programs",
    "unsolved_assignment",
]

SOLVER_MARGIN = 1e-9
"""Safety margin of the bounds of solvers, relative to the sum of the absolute scores."""

MIN_GAP = 1e-6
"""The smallest gap that a solver can prove, since its tolerances are of this size."""


@runtime_checkable
class StartedSolver(Protocol):
    """A solver that takes a known assignment."""

    def solve_from(
        self, program: Program, limits: SolverLimits, start: FloatArray | None
    ) -> Answer:
        """Solve a program from known values of its variables, or None."""


def unsolved_assignment(graph: ScoredGraph, gap: float) -> Assignment:
    """Return an assignment without values; its bounds are infinite, or NaN for invalid scores."""
    part, n = graph.layout.part, graph.layout.n_components
    none, v = np.zeros(part.n_variables, dtype=bool), np.zeros(part.n_additionals)
    score, bound = np.full(n, -np.inf), np.where(graph.non_finite, np.nan, np.inf)
    return assignment_of(graph, none, v, score, bound, np.zeros(n, dtype=np.int64), gap)


def unproved_programs(assignment: Assignment) -> dict[int, Program]:
    """Return the programs of the components without a proof of optimality, by their numbers."""
    layout, factors = assignment.layout, assignment.factors
    scores = assignment.scores, assignment.additional_scores
    components = np.flatnonzero(~assignment.proved & ~np.isnan(assignment.bound))
    found = programs(layout, factors, *scores, components)
    return dict(zip(components.tolist(), found, strict=True))


def improve_with_solver(
    assignment: Assignment,
    solver: MapSolver,
    limits: SearchLimits,
    given: Mapping[int, Program],
    share: float = 1.0,
) -> Assignment:
    """Improve an assignment by an external solver.

    Parameters
    ----------
    assignment
        The assignment so far.
    solver, limits
        The solver, and when to stop.
    given
        The programs of the components to solve, of those of `unproved_programs`.
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
    names = "values", "score", "bound", "n_nodes"
    result = dataclasses.replace(assignment, **{k: getattr(assignment, k).copy() for k in names})
    deadline = limits.deadline
    solver_limits = limits._replace(deadline=Deadline(share * deadline.left, within=deadline))
    part = result.layout.part
    candidate = np.nan_to_num(result.values[part.variables]) > 0.5
    chosen, bound = candidate.copy(), result.bound.copy()
    answered = np.zeros(len(bound), dtype=bool)
    for c, program in given.items():
        refusal = solver.refuses(program)
        if refusal:
            raise ValueError(f"solver: {refusal}")
        if solver_limits.deadline.passed:
            break
        known = result.values[program.variables] if result.score[c] > -np.inf else None
        answer = solver_answer(program, solver, solver_limits, known)
        if answer.interrupted:
            limits.deadline.end()
        result.n_nodes[c] += answer.n_nodes
        bound[c] = answer.bound
        if answer.values is not None:
            on = np.zeros(result.layout.n_variables, dtype=bool)
            on[program.variables] = answer.values > 0.5
            block = slice(*part.first_variable[c : c + 2].tolist())
            candidate[block], answered[c] = on[part.variables[block]], True
    with Watch():
        score, _ = score_assignment(part, *result.graph.of_part(), candidate)
    score[np.isnan(result.bound)] = -np.inf
    _judge_answers(solver, answered, score, bound, result.unit)
    better = score > result.score
    chosen = np.where(better[part.component], candidate, chosen)
    result.score = np.where(better, score, result.score)
    # a bound below a feasible score is wrong, or rounded: discard it
    result.bound = np.where(bound < result.score, result.bound, np.minimum(bound, result.bound))
    _write(result, chosen)
    result.interrupted = limits.deadline.cut
    result.gap, result.solver = max(result.gap, MIN_GAP), solver.name
    return result


def _judge_answers(
    solver: MapSolver, answered: BoolArray, score: FloatArray, bound: FloatArray, unit: FloatArray
) -> None:
    """Raise for a bound below the score of the same answer, and warn of infeasible answers."""
    tolerance = MIN_GAP * np.maximum(unit, np.abs(np.where(np.isfinite(score), score, 0.0)))
    for c in np.flatnonzero(answered & (bound < score - tolerance)).tolist():
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


def solver_answer(
    program: Program, solver: MapSolver, limits: SearchLimits, start: FloatArray | None
) -> Answer:
    """Return the answer of a solver.

    A program that is infeasible without its masked variables is solved again with them: with small
    masks if these are about equal, and otherwise with the scores as they are.
    """
    answer = _solved(program, solver, limits, start)
    masked = masked_bound(program)
    if answer.bound == -math.inf and masked > -math.inf:
        if limits.deadline.passed:
            return Answer(None, masked, answer.n_nodes)
        counting, n_before = with_masks(program), answer.n_nodes
        if counting is None:
            answer = _solved(as_given(program), solver, limits, start)
            return answer._replace(n_nodes=n_before + answer.n_nodes)
        answer = _solved(counting.program, solver, limits, start)
        answer = answer._replace(
            bound=counting.bound(answer.bound), n_nodes=n_before + answer.n_nodes
        )
        masked = min(masked, answer.bound)
    return answer._replace(bound=max(answer.bound, masked))


def _solved(
    program: Program, solver: MapSolver, limits: SearchLimits, start: FloatArray | None
) -> Answer:
    """Return the answer of a solver to scores in their unit, with a safety margin on its bound."""
    seconds = limits.deadline.left
    unit = unit_of(program.scores)
    given = dataclasses.replace(program, scores=program.scores / unit, masks=program.masks / unit)
    solver_limits = SolverLimits(
        limits.gap, seconds if seconds < math.inf else None, limits.threads
    )
    try:
        with raised_by_ctrl_c():
            if isinstance(solver, StartedSolver):
                answer = solver.solve_from(given, solver_limits, start)
            else:
                answer = solver.solve(given, solver_limits)
            answer = check_answer(solver, given, answer)
    except KeyboardInterrupt:
        return Answer(None, math.inf, interrupted=True)
    slack = SOLVER_MARGIN * (1.0 + float(np.abs(given.scores).sum()))
    return answer._replace(bound=unit * (answer.bound + slack))


def merge_better(target: Assignment, other: Assignment) -> None:
    """Merge the better components and bounds of the second assignment into the first."""
    part, better = target.layout.part, other.score > target.score
    values = np.where(better[part.component], *(a.values[part.variables] for a in (other, target)))
    target.score = np.where(better, other.score, target.score)
    target.bound = np.maximum(np.minimum(target.bound, other.bound), target.score)
    target.interrupted |= other.interrupted
    _write(target, np.nan_to_num(values) > 0.0)


def _write(assignment: Assignment, chosen: BoolArray) -> None:
    """Write the values and additionals of an assignment."""
    part = assignment.layout.part
    _, eta_v = assignment.graph.of_part()
    with Watch():
        _, v = best_additionals(part, eta_v, chosen)
    assignment.values[part.variables] = np.where(assignment.found[part.component], chosen, np.nan)
    assignment.additionals = part.by_declaration(v, assignment.factors)
