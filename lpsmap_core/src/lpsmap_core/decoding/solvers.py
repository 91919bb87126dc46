"""Solvers of whole graphs: what plugins can offer, and which one is taken."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from lpsmap_core.decoding.decode import DEFAULT_GAP, search_limits
from lpsmap_core.decoding.program import Program, without_description
from lpsmap_core.engine.choice import AUTO
from lpsmap_core.kernels.arrays import FloatArray
from lpsmap_core.model.factor import Factor

__all__ = [
    "OWN",
    "Answer",
    "MapSolver",
    "MapSolverChoice",
    "SolverLimits",
    "check_search_options",
    "choose_map_solver",
    "find_solvers_by",
]

OWN = "lpsmap"
"""The name of core's own search."""

PREFERRED = "highs"
"""What takes on what core's own search does not prove soon, where it is installed."""


LARGE = 1e7
"""Of scores, beyond which the tolerances of solvers hide others."""


class SolverLimits(NamedTuple):
    """When a solver has to stop."""

    gap: float
    """A bound within ``gap * max(1, abs(score))`` of the score is a proof."""
    seconds: float | None
    threads: int


class Answer(NamedTuple):
    """What a solver found."""

    values: FloatArray | None
    """The values of the program's variables, up to rounding; None if it found none."""
    bound: float
    """No assignment scores more; ``-inf`` if there is none, ``inf`` if nothing is known."""
    n_nodes: int = 0
    interrupted: bool = False


class MapSolver(abc.ABC):
    """Finds the best assignment of a component, given as an integer linear program.

    Core asks its own oracles whether the assignment is allowed, and what it scores.
    """

    name: ClassVar[str]
    """What `FactorGraph.solve_map` calls it."""

    @classmethod
    def missing(cls) -> str | None:
        """Return in a sentence what has to be installed; None if nothing is missing."""
        return None

    def refuses(self, program: Program) -> str | None:
        """Return in a sentence why a program is none for this solver; None if it is."""
        return None

    @abc.abstractmethod
    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        """Solve a program within `limits`."""


class MapSolverChoice(NamedTuple):
    """Who looks for the best assignment, and why."""

    solver: MapSolver | None
    """None for core's own search alone."""
    after_own: bool
    """Whether core's own search tries first."""
    reason: str


Find = Callable[[str], type[MapSolver]]

_finders: list[Find] = []


def find_solvers_by(find: Find) -> None:
    """Let a function find solvers by their names; plugins, who have them, are a floor above."""
    _finders[:] = [find]


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
        Whether nodes are limited, or progress is asked for, which only core's own search has.

    Raises
    ------
    ValueError
        If there is no solver of this name, or it cannot solve the graph.
    ModuleNotFoundError
        If what it needs is not installed.
    """
    if name == OWN:
        return MapSolverChoice(None, True, "was asked for")
    (find,) = _finders
    if name == AUTO:
        return _automatic(find, factors, scores, limited)
    solver = find(name)
    missing, obstacle = solver.missing(), _obstacle(factors, scores)
    if missing:
        raise ModuleNotFoundError(f"solver: {missing}")
    if obstacle:
        raise ValueError(f"solver: {name!r} cannot solve the graph, as {obstacle}. Use {OWN!r}.")
    return MapSolverChoice(solver(), False, "was asked for")


def check_search_options(
    *,
    gap: Any = DEFAULT_GAP,
    max_time: Any = None,
    max_nodes: Any = None,
    threads: Any = None,
    solver: str = AUTO,
) -> None:
    """Refuse bad options of an exact search without one, whose kernels take long to compile.

    Parameters
    ----------
    gap, max_time, max_nodes, threads, solver
        As for `FactorGraph.solve_map`.

    Raises
    ------
    TypeError
        If an option is of another type than it should be.
    ValueError
        If an option is out of range, or there is no such solver.
    ModuleNotFoundError
        If what the solver needs is not installed.
    """
    search_limits(gap, max_time, max_nodes, threads, None)
    choose_map_solver(solver, [], [], limited=max_nodes is not None)


def _automatic(
    find: Find, factors: Sequence[Factor], scores: Sequence[FloatArray], limited: bool
) -> MapSolverChoice:
    if limited:
        return MapSolverChoice(
            None, True, "alone counts nodes, for max_nodes, and reports progress"
        )
    solver = find(PREFERRED)
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
