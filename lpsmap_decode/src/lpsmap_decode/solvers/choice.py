"""Which solver looks for the best assignment of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lpsmap_core import Factor, MapSolver
from lpsmap_core.api import AUTO, OWN_SEARCH, FloatArray, solver_named
from lpsmap_decode.solvers.program import without_description

__all__ = ["MapSolverChoice", "choose_map_solver"]

PREFERRED = "highs"
"""What takes on what this package's own search does not prove soon, where it is installed."""

LARGE = 1e7
"""Of scores, beyond which the tolerances of solvers hide others."""


class MapSolverChoice(NamedTuple):
    """Who looks for the best assignment, and why."""

    solver: MapSolver | None
    """None for this package's own search alone."""
    after_own: bool
    """Whether this package's own search tries first."""
    reason: str


def choose_map_solver(
    name: str, factors: Sequence[Factor], scores: Sequence[FloatArray], limited: bool
) -> MapSolverChoice:
    """Return who looks for the best assignment of a graph.

    Parameters
    ----------
    name
        ``"auto"``, ``"lpsmap"``, or the name of a plugin's solver.
    factors, scores
        The graph's declarations, and all its scores.
    limited
        Whether nodes are limited, or progress is asked for, which only this package's own search
        has.

    Raises
    ------
    ValueError
        If there is no solver of this name, or it cannot solve the graph.
    ModuleNotFoundError
        If what it needs is not installed.
    """
    if name == OWN_SEARCH:
        return MapSolverChoice(None, True, "was asked for")
    if name == AUTO:
        return _automatic(factors, scores, limited)
    solver = solver_named(name)
    missing, obstacle = solver.missing(), _obstacle(factors, scores)
    if missing:
        raise ModuleNotFoundError(f"solver: {missing}")
    if obstacle:
        raise ValueError(
            f"solver: {name!r} cannot solve the graph, as {obstacle}. Use {OWN_SEARCH!r}."
        )
    return MapSolverChoice(solver(), False, "was asked for")


def _automatic(
    factors: Sequence[Factor], scores: Sequence[FloatArray], limited: bool
) -> MapSolverChoice:
    if limited:
        return MapSolverChoice(
            None, True, "alone counts nodes, for max_nodes, and reports progress"
        )
    solver = solver_named(PREFERRED)
    if solver.missing():
        return MapSolverChoice(None, True, f"is the only one: {PREFERRED} is not installed")
    obstacle = _obstacle(factors, scores)
    if obstacle:
        return MapSolverChoice(None, True, f"is the only one, as {obstacle}")
    reason = f"proves most at once; {PREFERRED} takes on what it does not"
    return MapSolverChoice(solver(), True, reason)


def _obstacle(factors: Sequence[Factor], scores: Sequence[FloatArray]) -> str | None:
    """Return why a graph makes no linear program."""
    without = without_description(factors)
    if without:
        return f"{', '.join(without)} factors have no linear constraints"
    if any((x > LARGE).any() for x in scores if x.size):
        return f"a score is above {LARGE:g}, beside which a solver's tolerances hide others"
    return None
