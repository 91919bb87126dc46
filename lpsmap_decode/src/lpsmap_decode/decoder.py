"""The interface of decoders, which find best assignments.

Core has no decoder of its own: its verbs call the one that a plugin provides by the hook
``lpsmap_decoders``.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from lpsmap_core import FactorGraph, Options, Solution, Variables
from lpsmap_core.api import AUTO, BoolArray, ScoredGraph

__all__ = ["Decoder", "Places"]

Places = Mapping[int, Sequence[tuple[int, int]]]
"""For components, (bucket, row) of factors of the part."""


class Decoder(abc.ABC):
    """Finds best assignments. A plugin provides one by the hook ``lpsmap_decoders``.

    A decoder is constructed without arguments, and has no state between calls. It validates the
    options of a search, `search`, as the user gave them: ``gap``, ``max_time``, ``max_nodes``,
    ``threads`` and ``progress``, which `FactorGraph.solve_map` documents.
    """

    name: ClassVar[str]
    """Name in the registry."""

    @abc.abstractmethod
    def check_options(self, solver: str = AUTO, **search: Any) -> None:
        """Validate the options of `best`; those that are left out have their defaults.

        Parameters
        ----------
        solver
            Name of the solver.
        search
            Options of the search.

        Raises
        ------
        TypeError
            If an option has a wrong type.
        ValueError
            If an option is out of range, or the solver is unknown.
        ModuleNotFoundError
            If a package that it needs is not installed.
        """

    @abc.abstractmethod
    def best(
        self,
        graph: FactorGraph,
        relax: Callable[[Options], Solution],
        options: Options,
        solver: str,
        **search: Any,
    ) -> Any:
        """Return the best assignment of a graph, with a bound.

        Parameters
        ----------
        graph
            The graph. Its ``scored_graph()`` has the layout and the scores, and its ``solution``
            the latest solution or assignment for these scores, if any.
        relax
            Solves LP-MAP. Unsolved components are not reported.
        options
            Validated options of the relaxation.
        solver
            Name of the solver, see `FactorGraph.solve_map`.
        search
            Options of the search.

        Returns
        -------
        Assignment
            Or an object with the same attributes.
        """

    @abc.abstractmethod
    def near(self, relaxation: Solution, **search: Any) -> Any:
        """Return an assignment near a relaxed solution, with a bound.

        Parameters
        ----------
        relaxation
            A solution with the quadratic term, or of LP-MAP.
        search
            Options of the search.
        """

    @abc.abstractmethod
    def k_best(
        self,
        graph: FactorGraph,
        relax: Callable[[Options], Solution],
        k: int,
        by_component: bool,
        **search: Any,
    ) -> Sequence[Any]:
        """Return the best assignments of a graph, the best first: at least one entry.

        Parameters
        ----------
        graph, relax
            As for `best`.
        k
            Maximum number of assignments, as the user gave it.
        by_component
            Whether to rank every component by itself; see `FactorGraph.k_best`.
        search
            Options of the search.
        """

    def contradictions(
        self, graph: ScoredGraph, known: Places, max_time: float
    ) -> tuple[Places, frozenset[int]]:
        """Return few factors of each infeasible component that contradict each other.

        Parameters
        ----------
        graph
            The graph.
        known
            For each infeasible component (bucket, row) of factors that contradict each other; none
            if no such factors are known.
        max_time
            When to stop, in seconds.

        Returns
        -------
        dict
            The factors; by default `known`.
        frozenset
            The components whose search the time ended: more of their factors than necessary may be
            named. By default all of `known`.
        """
        return known, frozenset(known)

    def call_kernels(self) -> None:  # noqa: B027 - a decoder may have none
        """Call the kernels that searches may need, on small inputs, for ``lpsmap compile``."""

    @abc.abstractmethod
    def condition(
        self,
        graph: Any,
        evidence: Sequence[tuple[Variables, npt.ArrayLike]],
        scores: Sequence[Any],
        additionals: Sequence[Any],
        forbid: Callable[[Any, BoolArray], Any],
    ) -> Any:
        """Return a graph given evidence; see `FactorGraph.condition`.

        Parameters
        ----------
        graph
            The graph.
        evidence
            Views of its variables, and their values.
        scores, additionals
            Its scores, by block of variables and by factor, in their array library.
        forbid
            Function that sets some scores of a block to -inf.
        """
