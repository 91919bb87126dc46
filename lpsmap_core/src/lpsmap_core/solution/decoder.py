"""The interface of decoders, which find best assignments.

Core has no decoder of its own: a pack provides one by the hook ``lpsmap_decoders``.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.choice import AUTO
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.protocol import SolvedGraph
from lpsmap_core.layout.layout import Layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.variables import Variables
from lpsmap_core.plugins.disabled_plugins import DISABLE
from lpsmap_core.plugins.packs import missing_pack_advice
from lpsmap_core.plugins.registry import installed
from lpsmap_jit.arrays import BoolArray, FloatArray

__all__ = ["DECODE_MAX_NODES", "DECODE_MAX_TIME", "DEFAULT_GAP", "Decoder", "MapProblem"]
__all__ += ["Places", "Relaxation", "ScoredGraph", "SearchOptions", "check_search_options"]
__all__ += ["installed_decoder"]

DEFAULT_GAP = 1e-8
"""Relative difference of bound and score that counts as a proof."""

DECODE_MAX_NODES = 1000
"""Default limit of the nodes for decoding a relaxed solution."""

DECODE_MAX_TIME = 10.0
"""Default time limit in seconds. For thousands of tables, a thousand nodes would take minutes."""


Places = Mapping[int, Sequence[tuple[int, int]]]
"""For components, (bucket, row) of factors of the part."""


class SearchOptions(NamedTuple):
    """Options of a search as a user gives them: the decoder validates them.

    `FactorGraph.solve_map` documents them.
    """

    gap: Any = DEFAULT_GAP
    max_time: Any = None
    max_nodes: Any = None
    threads: Any = None
    progress: Any = None


@dataclass(frozen=True)
class ScoredGraph:
    """The layout of a graph, with scores."""

    layout: Layout
    factors: Sequence[Factor]
    scores: FloatArray
    """(n_variables,) scores; ``-inf`` forbids a variable."""
    additional_scores: Sequence[FloatArray]
    """For every declaration, the (n_factors, n_additionals) scores; ``-inf`` forbids."""
    non_finite: BoolArray
    """For each component, whether one of its scores is NaN or ``+inf``."""

    def of_part(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores of the part's variables and additionals, zeros where not finite."""
        part = self.layout.part
        eta = self.scores[part.variables]
        eta_v = part.by_bucket(self.additional_scores, self.factors)
        eta = np.where(self.non_finite[part.component], 0.0, eta)
        return eta, np.where(self.non_finite[part.additional_component], 0.0, eta_v)


class Relaxation(NamedTuple):
    """A relaxed solution of a graph, the starting point of decoding."""

    graph: ScoredGraph
    values: FloatArray
    """(n_variables,) marginals."""
    solved: SolvedGraph


@dataclass(frozen=True)
class MapProblem:
    """A graph whose best assignments are searched."""

    scored: Callable[[], ScoredGraph]
    """Returns its layout and scores."""
    relax: Callable[[Options], Relaxation]
    """Solves LP-MAP. Unsolved components are not reported."""
    latest: Any = None
    """The latest solution or assignment for the same scores, if any."""


class Decoder(abc.ABC):
    """Finds best assignments. A plugin provides one by the hook ``lpsmap_decoders``.

    A decoder is constructed without arguments, and has no state between calls.
    """

    name: ClassVar[str]
    """Name in the registry."""

    @abc.abstractmethod
    def check_options(self, search: SearchOptions, solver: str) -> None:
        """Validate the options of `best`.

        Parameters
        ----------
        search
            Options of the search.
        solver
            Name of the solver.

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
        self, problem: MapProblem, options: Options, search: SearchOptions, solver: str
    ) -> Any:
        """Return the best assignment of a graph, with a bound.

        Parameters
        ----------
        problem
            The graph.
        options
            Validated options of its relaxation.
        search
            Options of the search.
        solver
            Name of the solver, see `FactorGraph.solve_map`.

        Returns
        -------
        Assignment
            That of ``lpsmap-decode``, or an object with the same attributes.
        """

    @abc.abstractmethod
    def near(self, relaxation: Relaxation, search: SearchOptions) -> Any:
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
        self, problem: MapProblem, k: int, search: SearchOptions, by_component: bool
    ) -> Sequence[Any]:
        """Return the best assignments of a graph, the best first: at least one entry.

        Parameters
        ----------
        problem
            The graph.
        k
            Maximum number of assignments, as the user gave it.
        search
            Options of the search.
        by_component
            Whether to rank every component by itself; see `FactorGraph.k_best`.
        """

    def contradictions(self, graph: ScoredGraph, known: Places) -> Places:
        """Return few factors of each infeasible component that contradict each other.

        Parameters
        ----------
        graph
            The graph.
        known
            For each infeasible component (bucket, row) of factors that contradict each other; none
            if no such factors are known. This is the result by default.
        """
        return known

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


def installed_decoder(verb: str) -> Decoder:
    """Return the installed decoder.

    Raises
    ------
    ImportError
        If no decoder is installed. The message names `verb`, and the package to install.
    RuntimeError
        If several decoders are installed.
    """
    found = list(installed().decoders.values())
    if not found:
        advice = missing_pack_advice("lpsmap-decode")
        raise ImportError(f"{verb}: no decoder of best assignments is installed; {advice}")
    if len(found) > 1:
        names = " and ".join(f"{each.name!r} of {each.plugin.distribution}" for each in found)
        ways = " or ".join(f"{DISABLE}={each.plugin.distribution}" for each in found)
        raise RuntimeError(
            f"{verb}: several decoders are installed, {names}; disable all but one: {ways}"
        )
    decoder: Decoder = found[0].value()
    return decoder


def check_search_options(
    *,
    gap: Any = DEFAULT_GAP,
    max_time: Any = None,
    max_nodes: Any = None,
    threads: Any = None,
    solver: str = AUTO,
) -> None:
    """Validate the options of an exact search without running it.

    Parameters
    ----------
    gap, max_time, max_nodes, threads, solver
        As for `FactorGraph.solve_map`.

    Raises
    ------
    TypeError
        If an option has a wrong type.
    ValueError
        If an option is out of range, or the solver is unknown.
    ImportError
        If no decoder is installed, or a package that the solver needs.
    """
    options = SearchOptions(gap, max_time, max_nodes, threads)
    installed_decoder("exact search").check_options(options, solver)
