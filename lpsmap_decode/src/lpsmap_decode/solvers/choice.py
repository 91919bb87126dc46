"""Selection of the solver for the best assignment of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lpsmap_core import Factor, installed
from lpsmap_core.api import AUTO, FloatArray
from lpsmap_decode.results.assignment import OWN_SEARCH
from lpsmap_decode.solvers.map_solver import MapSolver
from lpsmap_decode.solvers.maxsat import MaxSatSolver
from lpsmap_decode.solvers.program import without_constraints

__all__ = ["MapSolverChoice", "choose_map_solver"]

PREFERRED = "highs"
"""The solver that follows the built-in search if that does not prove optimality soon."""

MAX_SCORE = 1e7
"""Maximum score: beyond it, the tolerances of solvers hide other scores."""


class MapSolverChoice(NamedTuple):
    """The selected solver, and the reason."""

    solver: MapSolver | None
    """None for the built-in search alone."""
    clauses: MapSolver | None
    """A solver for components without an assignment, as far as it supports them."""
    after_own: bool
    """Whether the built-in search runs first."""
    reason: str


def choose_map_solver(
    name: str, factors: Sequence[Factor], scores: Sequence[FloatArray], limited: bool
) -> MapSolverChoice:
    """Select the solver for the best assignment of a graph.

    Parameters
    ----------
    name
        ``"auto"``, ``"lpsmap"``, or the name of a plugin's solver.
    factors, scores
        The declarations of the graph, and all its scores.
    limited
        Whether a node limit is requested, which only the built-in search supports.

    Raises
    ------
    ValueError
        If no solver has this name, or it cannot solve the graph.
    ModuleNotFoundError
        If a dependency of the solver is not installed.
    """
    if name == OWN_SEARCH:
        return MapSolverChoice(None, None, True, "was requested")
    if name == AUTO:
        return _automatic(factors, scores, limited)
    solver: type[MapSolver] = installed().of_kind("solvers").named(name, "solver", AUTO, OWN_SEARCH)
    missing, obstacle = solver.missing(), _obstacle(factors, scores)
    if missing:
        raise ModuleNotFoundError(f"solver: {missing}")
    if obstacle:
        raise ValueError(
            f"solver: {name!r} cannot solve the graph because {obstacle}. Use {OWN_SEARCH!r}."
        )
    return MapSolverChoice(solver(), None, False, "was requested")


def _automatic(
    factors: Sequence[Factor], scores: Sequence[FloatArray], limited: bool
) -> MapSolverChoice:
    if limited:
        return MapSolverChoice(None, None, True, "alone supports max_nodes")
    obstacle = _obstacle(factors, scores)
    if obstacle:
        return MapSolverChoice(None, None, True, f"is the only solver because {obstacle}")
    clauses = None if MaxSatSolver.missing() else MaxSatSolver(until_found=True)
    solver: type[MapSolver] = installed().of_kind("solvers").named(PREFERRED, "solver")
    if solver.missing():
        reason = f"is the only solver: {PREFERRED} is not installed"
        return MapSolverChoice(None, clauses, True, reason)
    reason = f"proves most assignments soon; {PREFERRED} solves the others"
    return MapSolverChoice(solver(), clauses, True, reason)


def _obstacle(factors: Sequence[Factor], scores: Sequence[FloatArray]) -> str | None:
    """Return why a graph has no integer linear program, or None."""
    without = without_constraints(factors)
    if without:
        return f"{', '.join(without)} factors have no linear constraints"
    if any((x > MAX_SCORE).any() for x in scores if x.size):
        return f"a score is above {MAX_SCORE:g}, beyond the precision of solvers"
    return None
