"""The interface of decoders, which find best assignments.

Core has no decoder of its own. The distribution ``lpsmap-decode`` provides one by the hook
``lpsmap_decoders``.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.choice import AUTO
from lpsmap_core.engine.options import CONVERTERS, Options, threads_or_default
from lpsmap_core.engine.protocol import SolvedGraph
from lpsmap_core.layout.layout import Layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import checked_count, checked_number
from lpsmap_core.model.variables import Variables
from lpsmap_core.solution.assignment import Assignment
from lpsmap_core.solution.contradictions import Places, set_reducer
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.deadlines import Deadline

__all__ = ["DECODE_MAX_NODES", "DECODE_MAX_TIME", "DEFAULT_GAP", "Decoder", "Relaxation"]
__all__ += ["ScoredGraph", "SearchLimits", "SearchProgress", "check_search_options"]
__all__ += ["installed_decoder", "options_for_search", "set_decoder_finder"]
__all__ += ["search_limits"]

DEFAULT_GAP = 1e-8
"""Relative difference of bound and score that counts as a proof."""

DECODE_MAX_NODES = 1000
"""Default limit of the nodes for decoding a relaxed solution."""

DECODE_MAX_TIME = 10.0
"""Default time limit in seconds. For thousands of tables, a thousand nodes would take minutes."""

PROVING_TOLERANCE = 1e-10
"""Tolerance of the relaxation before a search. Its bound must be as tight as the gap."""

RELAXATION_SHARE = 0.5
"""Share of the time limit for that relaxation."""


@dataclass
class SearchProgress:
    """Progress of a search."""

    score: float = -math.inf
    """Score of the best assignment so far."""
    bound: float = math.inf
    """Upper bound of the score."""
    n_nodes: int = 0
    seconds: float = 0.0


class SearchLimits(NamedTuple):
    """Limits of a search, and its resources."""

    gap: float
    """A bound within ``gap * max(1, abs(score))`` of the score is a proof."""
    max_nodes: int | None
    """Limit of the nodes of each component's search; 0 for no search."""
    deadline: Deadline
    threads: int
    report: Callable[[int, SearchProgress], None] | None = None
    """Called with the number of a component and the progress of its search."""


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


class Decoder(abc.ABC):
    """Finds best assignments. A plugin provides one by the hook ``lpsmap_decoders``.

    A decoder is constructed without arguments, and has no state between calls.
    """

    name: ClassVar[str]
    """Name in the registry."""

    @abc.abstractmethod
    def check_solver(self, solver: str, limited: bool) -> None:
        """Validate the solver of `best`.

        Parameters
        ----------
        solver
            Name of the solver.
        limited
            Whether the number of nodes is limited.

        Raises
        ------
        ValueError
            If the solver is unknown.
        ModuleNotFoundError
            If a package that it needs is not installed.
        """

    @abc.abstractmethod
    def best(
        self,
        graph: ScoredGraph,
        solver: str,
        limits: SearchLimits,
        relax: Callable[[], Relaxation],
    ) -> Assignment:
        """Return the best assignment of a graph, with a bound.

        Parameters
        ----------
        graph
            The graph.
        solver
            Name of the solver, see `FactorGraph.solve_map`.
        limits
            Limits of the search.
        relax
            Function that solves LP-MAP.
        """

    @abc.abstractmethod
    def near(self, relaxation: Relaxation, limits: SearchLimits) -> Assignment:
        """Return an assignment near a relaxed solution, with a bound.

        Parameters
        ----------
        relaxation
            A solution with the quadratic term, or of LP-MAP.
        limits
            Limits of the search.
        """

    @abc.abstractmethod
    def k_best(
        self, relaxation: Relaxation, k: int, limits: SearchLimits, by_component: bool
    ) -> Sequence[Assignment]:
        """Return the best assignments of a graph, the best first: at least one entry.

        Parameters
        ----------
        relaxation
            A solution of LP-MAP.
        k
            Maximum number of assignments.
        limits
            Limits of the search.
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


_finders: list[Callable[[str], Decoder]] = []


def set_decoder_finder(find: Callable[[str], Decoder]) -> None:
    """Set the function that finds the decoder, since the registry is in a higher layer.

    Parameters
    ----------
    find
        Returns the decoder. Its argument is the name of the calling method, for errors.
    """
    _finders[:] = [find]


def installed_decoder(verb: str) -> Decoder:
    """Return the installed decoder.

    Raises
    ------
    ImportError
        If no decoder is installed. The message names `verb`, and the package to install.
    """
    (find,) = _finders
    return find(verb)


def _reduced(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additional_scores: Sequence[FloatArray],
    known: Places,
) -> Places:
    """Return the contradictions that the installed decoder finds, or the known ones without it."""
    try:
        decoder = installed_decoder("contradictions")
    except ImportError:
        return known
    finite = np.zeros(layout.n_components, dtype=np.bool_)
    return decoder.contradictions(
        ScoredGraph(layout, factors, scores, additional_scores, finite), known
    )


set_reducer(_reduced)


def search_limits(
    gap: Any,
    max_time: float | None,
    max_nodes: Any,
    threads: Any,
    report: Callable[[int, SearchProgress], None] | None,
) -> SearchLimits:
    """Return validated limits, with a deadline that starts now."""
    expected = "a number that is not negative"
    return SearchLimits(
        gap=checked_number("gap", gap, expected, lambda x: 0.0 <= x < math.inf),
        max_nodes=None if max_nodes is None else checked_count("max_nodes", max_nodes, ", or None"),
        deadline=Deadline(CONVERTERS["max_time"](max_time)),
        threads=threads_or_default(threads),
        report=report,
    )


def options_for_search(options: Options, limits: SearchLimits) -> Options:
    """Return the options of the relaxation from which a search starts."""
    limit = None if options.max_time is None else RELAXATION_SHARE * options.max_time
    tol = min(options.tol, PROVING_TOLERANCE)
    return options._replace(tol=tol, max_time=limit, within=limits.deadline, exact=True)


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
    search_limits(gap, max_time, max_nodes, threads, None)
    decoder = installed_decoder("exact search")
    decoder.check_solver(solver, limited=max_nodes is not None)
