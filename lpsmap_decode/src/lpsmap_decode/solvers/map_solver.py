"""The interface of solvers of whole graphs: their input and output."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar, NamedTuple

from lpsmap_core.api import FloatArray, IntArray

__all__ = ["Answer", "MapSolver", "Program", "SolverLimits", "is_installed"]


@dataclass(frozen=True)
class Program:
    """``maximise <scores, x>`` over ``low <= A x <= high`` and ``0 <= x <= upper``.

    Attributes
    ----------
    variables
        The component's variables, by their numbers in the graph. They are the first columns, and
        are 0 or 1.
    scores, upper, n_auxiliary
        For each column, and the number of auxiliary columns. The variables are followed by the
        additionals of their factors, which are 0 or 1 if the variables are, and by the auxiliary
        columns, which are continuous.
    row, column, coefficient, low, high
        The nonzeros of A, row by row, without duplicates, and the bounds of each row.
    masks
        For each column, its score if the column was excluded as a mask, or 0.
    """

    variables: IntArray
    scores: FloatArray
    upper: FloatArray
    n_auxiliary: int
    row: IntArray
    column: IntArray
    coefficient: FloatArray
    low: FloatArray
    high: FloatArray
    masks: FloatArray


class SolverLimits(NamedTuple):
    """Limits of a solver."""

    gap: float
    """A bound within ``gap * max(1, abs(score))`` of the score is a proof."""
    seconds: float | None
    """Time limit, or None."""
    threads: int
    """Number of threads that may be used."""


class Answer(NamedTuple):
    """The result of a solver."""

    values: FloatArray | None
    """The values of the program's variables, up to rounding; None if no assignment was found."""
    bound: float
    """Upper bound of the score; ``-inf`` if infeasible, ``inf`` if no bound is known."""
    n_nodes: int = 0
    """Number of nodes of the search."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search."""


class MapSolver(abc.ABC):
    """Finds the best assignment of a component, given as an integer linear program.

    The factors' own oracles verify the assignment, and compute its score.
    """

    name: ClassVar[str]
    """Name for `FactorGraph.solve_map`."""

    @classmethod
    def missing(cls) -> str | None:
        """Return a sentence that says what must be installed; None if nothing is missing."""
        return None

    def refuses(self, program: Program) -> str | None:
        """Return a sentence that says why the solver cannot solve a program; None if it can."""
        return None

    @abc.abstractmethod
    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        """Solve a program within `limits`."""


@functools.cache
def is_installed(module: str) -> bool:
    """Return whether a module is installed; the look-up takes longer than a small search."""
    return find_spec(module) is not None
