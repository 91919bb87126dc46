"""Solvers of whole graphs: what they are handed, and what they return."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from lpsmap_jit.arrays import FloatArray, IntArray

__all__ = ["Answer", "MapSolver", "Program", "SolverLimits"]


@dataclass(frozen=True)
class Program:
    """``maximise <scores, x>`` over ``low <= A x <= high`` and ``0 <= x <= upper``.

    Attributes
    ----------
    variables
        The graph's numbers of the component's variables: the first columns, which are 0 or 1.
    scores, upper
        For each column. Behind the variables come the additionals of their factors, which are 0 or
        1 as well where the variables are, and auxiliary columns.
    n_auxiliary
        How many of these there are.
    row, column, coefficient
        The entries of A, row by row, one for a place.
    low, high
        For each row.
    masks
        For each column, its score if it was left out as a mask, or 0.
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

    The factors' own oracles say the assignment is allowed, and what it scores.
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
