"""The best assignment of a component besides some known ones, by an external solver.

Every known assignment is excluded by a row: some variable has another value.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from lpsmap_core.api import BoolArray, ScoredGraph, Watch
from lpsmap_decode.exact.component_copies import copies_of
from lpsmap_decode.results.assignment_score import score_assignment
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.solvers.external_solver import solver_answer
from lpsmap_decode.solvers.map_solver import MapSolver, Program
from lpsmap_decode.solvers.program import programs

__all__ = ["NextBest", "next_best"]

NextBest = Callable[[Sequence[BoolArray], BoolArray | None], tuple[BoolArray | None, float, float]]
"""Returns the best assignment besides some, its score, and a bound on the score of all others.

It may start from another assignment, the second argument: most of a search goes into finding it."""


def next_best(
    graph: ScoredGraph, component: int, solver: MapSolver, limits: SearchLimits
) -> NextBest:
    """Return a function that excludes assignments of a component.

    The factors of the graph all have linear constraints.
    """

    @functools.cache
    def whole() -> Program:
        scores = graph.scores, graph.additional_scores
        (program,) = programs(graph.layout, graph.factors, *scores, np.array([component]))
        return program

    def best_besides(
        known: Sequence[BoolArray], start: BoolArray | None
    ) -> tuple[BoolArray | None, float, float]:
        values = None if start is None else start.astype(np.float64)
        answer = solver_answer(_without(whole(), known), solver, limits, values)
        if answer.interrupted:
            limits.deadline.end()
        if answer.values is None:
            return None, -np.inf, answer.bound
        chosen: BoolArray = answer.values > 0.5  # noqa: PLR2004 - of zeros and ones
        return chosen, _score(graph, component, chosen), answer.bound

    return best_besides


def _without(program: Program, known: Sequence[BoolArray]) -> Program:
    """Return a program without some assignments of its variables."""
    n, new, n_variables = len(program.low), len(known), len(program.variables)
    on = np.array(known).reshape(new, n_variables)
    return dataclasses.replace(
        program,
        row=np.concatenate([program.row, np.repeat(n + np.arange(new), n_variables)]),
        column=np.concatenate([program.column, np.tile(np.arange(n_variables), new)]),
        coefficient=np.concatenate([program.coefficient, np.where(on, -1.0, 1.0).reshape(-1)]),
        low=np.concatenate([program.low, 1.0 - on.sum(axis=1)]),
        high=np.concatenate([program.high, np.full(new, np.inf)]),
    )


def _score(graph: ScoredGraph, component: int, chosen: BoolArray) -> float:
    """Return the score of an assignment of a component; ``-inf`` if it is not allowed."""
    part, (eta, eta_v) = graph.layout.part, graph.of_part()
    own = eta[slice(*part.first_variable[component : component + 2].tolist())]
    of_component = eta_v[part.additional_component == component]
    with Watch():
        scores, _ = score_assignment(copies_of(part, component, 1), own, of_component, chosen)
    return float(scores[0])
