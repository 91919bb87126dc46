"""The decoder: best assignments by this package's search, and by solvers of whole graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from lpsmap_core import Assignment, Decoder, Variables
from lpsmap_core.api import BoolArray, Conditioned, Relaxation, ScoredGraph, SearchLimits
from lpsmap_decode.evidence import condition
from lpsmap_decode.exact.component_search import FIRST_NODES
from lpsmap_decode.exact.decode import decode
from lpsmap_decode.exact.ranked import RankedAssignments, ranked_assignments
from lpsmap_decode.solvers.choice import choose_map_solver
from lpsmap_decode.solvers.external_solver import hand_over, nothing_known, take_better

__all__ = ["ExactDecoder"]

SHARE = 0.75
"""Of the time given, what a solver may take that comes first. What it does not prove, the bound of
the relaxation limits, too, and its rounding may be more than nothing."""


class ExactDecoder(Decoder):
    """Branch and bound over LP-MAP, beside solvers of whole graphs."""

    name = "exact"

    def check_solver(self, solver: str, limited: bool) -> None:
        """Refuse a solver that there is none of, or that lacks what it needs."""
        choose_map_solver(solver, [], [], limited)

    def best(
        self,
        graph: ScoredGraph,
        solver: str,
        limits: SearchLimits,
        relax: Callable[[], Relaxation],
    ) -> Assignment:
        """Return the best assignment that the chosen solvers find, see `Decoder.best`.

        This package's own search is short where another solver comes after it.

        Raises
        ------
        ValueError
            If there is no such solver, or it refuses the graph.
        ModuleNotFoundError
            If what it needs is not installed.
        """
        limited = bool(limits.max_nodes or limits.report)
        all_scores = [graph.scores, *graph.additional_scores]
        choice = choose_map_solver(solver, graph.factors, all_scores, limited)
        if choice.solver is None:
            found = decode(relax(), limits)
        elif choice.after_own:
            found = decode(relax(), limits._replace(max_nodes=FIRST_NODES))
            if not (found.proved.all() or limits.deadline.passed):
                found = hand_over(found, choice.solver, limits)
        else:
            found = hand_over(nothing_known(graph, limits.gap), choice.solver, limits, SHARE)
            if not (found.proved.all() or limits.deadline.passed):
                take_better(found, decode(relax(), limits._replace(max_nodes=0)))
        found.reason = choice.reason
        return found

    def near(self, relaxation: Relaxation, limits: SearchLimits) -> Assignment:
        """Return an assignment near a relaxed solution, and what is proved of it."""
        return decode(relaxation, limits)

    def k_best(self, relaxation: Relaxation, k: int, limits: SearchLimits) -> RankedAssignments:
        """Return the `k` best assignments of every component."""
        return ranked_assignments(relaxation, k, limits)

    def condition(
        self,
        graph: Any,
        evidence: Sequence[tuple[Variables, npt.ArrayLike]],
        scores: Sequence[Any],
        additionals: Sequence[Any],
        forbid: Callable[[Any, BoolArray], Any],
    ) -> Conditioned:
        """Return a graph given evidence."""
        return condition(graph, evidence, scores, additionals, forbid)
