"""The decoder: best assignments by this package's search or by an external solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lpsmap_core import Deadline, FactorGraph, Options, Solution, ended_by_ctrl_c
from lpsmap_core.api import AUTO, ScoredGraph, checked_count, checked_flag
from lpsmap_decode.compile_searches import call_kernels
from lpsmap_decode.decoder import Decoder, Places
from lpsmap_decode.evidence import condition
from lpsmap_decode.exact.component_search import FIRST_NODES
from lpsmap_decode.exact.contradictions import contradicting_factors
from lpsmap_decode.exact.decode import decode
from lpsmap_decode.exact.ranked_assignments import RankedAssignments, ranked_assignments
from lpsmap_decode.results.assignment import Assignment
from lpsmap_decode.results.search_limits import SearchLimits, options_for_search, search_limits
from lpsmap_decode.solvers.choice import MapSolverChoice, choose_map_solver
from lpsmap_decode.solvers.external_solver import (
    improve_with_solver,
    merge_better,
    unproved_programs,
    unsolved_assignment,
)
from lpsmap_decode.solvers.map_solver import MapSolver

__all__ = ["ExactDecoder"]

MAX_RANK = 1_000_000
"""Largest number of best assignments. All of them are stored."""

SHARE = 0.75
"""The share of the time that is left for an external solver. The rest is for this package: the
bound of the relaxation may be tighter, and heuristics find and improve assignments."""

SECONDS_A_NUMBER = 2e-5
"""Seconds for each link and additional below which external solvers have not found an assignment.
"""

CLAUSES_SHARE = 0.25
"""The share of the time that is left for the solver of clauses."""

MAX_CLAUSES_SECONDS = 10.0
"""Maximum seconds of the solver of clauses, which is soon done or hopeless."""

FIRST_SHARE = 0.4
"""The share of the time that is left for this package's search before the external solver."""


class ExactDecoder(Decoder):
    """Branch and bound over LP-MAP, with external solvers as alternatives."""

    name = "exact"

    def check_options(self, solver: str = AUTO, **search: Any) -> None:
        """Raise an error if an option is invalid, or a dependency of the solver not installed."""
        limits = search_limits(**search)
        choose_map_solver(solver, [], [], limited=limits.max_nodes is not None)

    def best(
        self,
        graph: FactorGraph,
        relax: Callable[[Options], Solution],
        options: Options,
        solver: str,
        **search: Any,
    ) -> Assignment:
        """Return the best assignment that the chosen solvers find, see `Decoder.best`.

        If the latest result is a relaxation, its bound is used.

        Raises
        ------
        ValueError
            If the solver does not exist or does not support the graph.
        ModuleNotFoundError
            If a dependency of the solver is not installed.
        """
        limits, latest = search_limits(**search), graph.solution
        options = options_for_search(options, limits)
        with ended_by_ctrl_c(limits.deadline):
            found = _best(graph.scored_graph(), solver, limits, lambda: relax(options))
            if isinstance(latest, Solution) and latest.is_linear and not found.proved.all():
                known = latest.objective + latest.gap
                lower = known < found.bound
                found.bound = np.where(lower, np.maximum(known, found.score), found.bound)
            return found

    def near(self, relaxation: Solution, **search: Any) -> Assignment:
        """Return an assignment near a relaxed solution, with its bounds."""
        limits = search_limits(**search)
        with ended_by_ctrl_c(limits.deadline):
            return decode(relaxation, limits)

    def k_best(
        self,
        graph: FactorGraph,
        relax: Callable[[Options], Solution],
        k: int,
        by_component: bool,
        **search: Any,
    ) -> RankedAssignments:
        """Return the `k` best assignments of a graph, or of each of its components.

        Raises
        ------
        TypeError
            If an option has a wrong type.
        ValueError
            If an option is out of range, or `k` exceeds `MAX_RANK`.
        """
        k = checked_count("k_best: k", k)
        checked_flag("k_best: by_component", by_component)
        limits = search_limits(**search)
        if k > MAX_RANK:
            raise ValueError(
                f"k_best: k: got {k}; expected at most {MAX_RANK}, since all are stored."
            )
        linear = Options(threads=limits.threads, quadratic=0.0, max_time=search["max_time"])
        options = options_for_search(linear, limits)._replace(exact=False)
        with ended_by_ctrl_c(limits.deadline):
            scored = graph.scored_graph()
            scores = [scored.scores, *scored.additional_scores]
            choice = choose_map_solver(AUTO, graph.factors, scores, limits.max_nodes is not None)
            return ranked_assignments(relax(options), k, limits, by_component, choice.solver)

    def contradictions(
        self, graph: ScoredGraph, known: Places, max_time: float
    ) -> tuple[Places, frozenset[int]]:
        """Return an irreducible set of contradicting factors of each infeasible component."""
        part, deadline = graph.layout.part, Deadline(max_time)
        scores = graph.of_part()
        found = {
            component: contradicting_factors(part, *scores, component, which, deadline)
            for component, which in known.items()
        }
        ended = frozenset(c for c, (_, irreducible) in found.items() if not irreducible)
        return {component: places for component, (places, _) in found.items()}, ended

    def call_kernels(self) -> None:
        """Call the kernels of all searches; see `Decoder.call_kernels`."""
        call_kernels()

    condition = staticmethod(condition)


def _best(
    graph: ScoredGraph, solver: str, limits: SearchLimits, relax: Callable[[], Solution]
) -> Assignment:
    """Return the best assignment that the chosen solvers find.

    The search of this package is short if an external solver follows it.
    """
    limited = limits.max_nodes is not None
    all_scores = [graph.scores, *graph.additional_scores]
    choice = choose_map_solver(solver, graph.factors, all_scores, limited)
    if choice.after_own or choice.solver is None:
        found = _own_first(relax(), choice, limits)
    else:
        found = unsolved_assignment(graph, limits.gap)
        given = unproved_programs(found)
        found = improve_with_solver(found, choice.solver, limits, given, SHARE)
        if not _is_over(found, limits):
            merge_better(found, decode(relax(), limits._replace(max_nodes=0)))
    found.interrupted |= limits.deadline.cut
    found.reason = choice.reason
    return found


def _own_first(relaxation: Solution, choice: MapSolverChoice, limits: SearchLimits) -> Assignment:
    """Return the best assignment of a short search, external solvers, and another search."""
    deadline, part = limits.deadline, relaxation.graph.layout.part
    alone = choice.solver is None and choice.clauses is None
    if alone or deadline.left < SECONDS_A_NUMBER * (part.n_links + part.n_additionals):
        return decode(relaxation, limits)
    first = Deadline(FIRST_SHARE * deadline.left, within=deadline)
    brief = limits._replace(max_nodes=FIRST_NODES, deadline=first, precedes_solver=True)
    found = decode(relaxation, brief)
    if _is_over(found, limits):
        return found
    if choice.clauses is not None:
        found = _first_by_clauses(found, choice.clauses, limits)
    if choice.solver is not None and not _is_over(found, limits):
        found = improve_with_solver(found, choice.solver, limits, unproved_programs(found), SHARE)
    if not _is_over(found, limits):
        merge_better(found, decode(relaxation, limits, found))
    return found


def _first_by_clauses(found: Assignment, solver: MapSolver, limits: SearchLimits) -> Assignment:
    """Let the solver of clauses find what is missing, in the components that it supports."""
    missing = {
        component: program
        for component, program in unproved_programs(found).items()
        if not found.found[component] and not solver.refuses(program)
    }
    if not missing:
        return found
    seconds = min(CLAUSES_SHARE * limits.deadline.left, MAX_CLAUSES_SECONDS)
    short = limits._replace(deadline=Deadline(seconds, within=limits.deadline))
    return improve_with_solver(found, solver, short, missing)


def _is_over(found: Assignment, limits: SearchLimits) -> bool:
    """Return whether a search is finished or out of time."""
    return bool(found.proved.all()) or found.interrupted or limits.deadline.passed
