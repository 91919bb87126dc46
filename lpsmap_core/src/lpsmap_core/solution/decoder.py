"""The door to exact decoding: what finds best assignments, and what it is handed.

Core has no decoder of its own. The distribution ``lpsmap-decode`` offers one by the hook
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
from lpsmap_core.model.evidence import Conditioned
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.inputs import checked_count, checked_number
from lpsmap_core.model.variables import Variables
from lpsmap_core.solution.assignment import Assignment
from lpsmap_jit.arrays import BoolArray, FloatArray
from lpsmap_jit.deadlines import Deadline

__all__ = ["DECODED_NODES", "DECODED_SECONDS", "DEFAULT_GAP", "Decoder", "Relaxation"]
__all__ += ["ScoredGraph", "SearchLimits", "SearchProgress", "check_search_options"]
__all__ += ["checked_rank", "find_decoder_by", "installed_decoder", "options_for_search"]
__all__ += ["search_limits"]

DEFAULT_GAP = 1e-8
"""Relative difference of bound and score that counts as a proof."""

DECODED_NODES = 1000
"""Nodes that are looked at to make something allowed of a relaxed solution."""

DECODED_SECONDS = 10.0
"""What that may take: a thousand nodes of a network of thousands of tables are minutes."""

MOST_RANKED = 1_000_000
"""As many assignments of every component can be asked for: all that are found are kept."""

PROVING_TOLERANCE = 1e-10
"""Of the relaxation that a search sets out from: its bound has to be as sharp as the gap."""

SHARE = 0.5
"""Of the time given, what that relaxation may take."""


@dataclass
class SearchProgress:
    """How far a search is."""

    score: float = -math.inf
    """Of the best answer so far."""
    bound: float = math.inf
    """No answer scores higher."""
    n_nodes: int = 0
    seconds: float = 0.0


class SearchLimits(NamedTuple):
    """When to stop a search, and what it may use."""

    gap: float
    """A bound within ``gap * max(1, abs(score))`` of the score is a proof."""
    max_nodes: int | None
    """Of each component's search; none at all with 0."""
    deadline: Deadline
    threads: int
    report: Callable[[int, SearchProgress], None] | None = None
    """Called with a component's number and how far its search is."""


@dataclass(frozen=True)
class ScoredGraph:
    """A laid-out graph, and its scores."""

    layout: Layout
    factors: Sequence[Factor]
    scores: FloatArray
    """Of all variables; ``-inf`` forbids."""
    additional_scores: Sequence[FloatArray]
    """For every declaration, the (n_factors, n_additionals) scores of its additionals, likewise."""
    non_finite: BoolArray
    """For each component, whether a score of it is NaN or ``+inf``."""

    def of_part(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores of the part's variables and additionals, zeros where not finite."""
        part = self.layout.part
        eta = self.scores[part.variables]
        eta_v = part.by_bucket(self.additional_scores, self.factors)
        eta = np.where(self.non_finite[part.component], 0.0, eta)
        return eta, np.where(self.non_finite[part.additional_component], 0.0, eta_v)


class Relaxation(NamedTuple):
    """A relaxed solution of a graph, from which decoding goes on."""

    graph: ScoredGraph
    values: FloatArray
    """(n_variables,) marginals."""
    solved: SolvedGraph


class Decoder(abc.ABC):
    """Finds best assignments. A plugin offers one by the hook ``lpsmap_decoders``.

    A decoder is made without arguments, and keeps nothing from one call to the next.
    """

    name: ClassVar[str]
    """What it is known by."""

    @abc.abstractmethod
    def check_solver(self, solver: str, limited: bool) -> None:
        """Refuse a solver of `best` that there is none of, or that lacks what it needs.

        Parameters
        ----------
        solver
            Its name.
        limited
            Whether nodes are limited.

        Raises
        ------
        ValueError
            If there is no such solver.
        ModuleNotFoundError
            If what it needs is not installed.
        """

    @abc.abstractmethod
    def best(
        self,
        graph: ScoredGraph,
        solver: str,
        limits: SearchLimits,
        relax: Callable[[], Relaxation],
    ) -> Assignment:
        """Return the best assignment of a graph, and what is proved of it.

        Parameters
        ----------
        graph
            The graph.
        solver
            Name of what looks for it, see `FactorGraph.solve_map`.
        limits
            When to stop.
        relax
            Solves LP-MAP.
        """

    @abc.abstractmethod
    def near(self, relaxation: Relaxation, limits: SearchLimits) -> Assignment:
        """Return an assignment near a relaxed solution, and what is proved of it.

        Parameters
        ----------
        relaxation
            A solution with the quadratic term, or of LP-MAP.
        limits
            When to stop.
        """

    @abc.abstractmethod
    def k_best(self, relaxation: Relaxation, k: int, limits: SearchLimits) -> Sequence[Assignment]:
        """Return the best assignments of every component, the j-th best in the j-th entry.

        Parameters
        ----------
        relaxation
            A solution of LP-MAP.
        k
            How many.
        limits
            When to stop.
        """

    @abc.abstractmethod
    def condition(
        self,
        graph: Any,
        evidence: Sequence[tuple[Variables, npt.ArrayLike]],
        scores: Sequence[Any],
        additionals: Sequence[Any],
        forbid: Callable[[Any, BoolArray], Any],
    ) -> Conditioned:
        """Return a graph given evidence; see `FactorGraph.condition`.

        Parameters
        ----------
        graph
            The graph.
        evidence
            Views of its variables, and what they are.
        scores, additionals
            Its scores as they are kept, by block of variables, and by factor.
        forbid
            What makes some scores of a block -inf.
        """


_finders: list[Callable[[str], Decoder]] = []


def find_decoder_by(find: Callable[[str], Decoder]) -> None:
    """Let a function find the decoder; plugins, who have it, are a floor above.

    Parameters
    ----------
    find
        Returns the decoder for a verb, which an error names if there is none.
    """
    _finders[:] = [find]


def installed_decoder(verb: str) -> Decoder:
    """Return the decoder that a plugin offers.

    Raises
    ------
    ImportError
        If none is installed; the message names the verb, and what to install.
    """
    (find,) = _finders
    return find(verb)


def search_limits(
    gap: Any,
    max_time: float | None,
    max_nodes: Any,
    threads: Any,
    report: Callable[[int, SearchProgress], None] | None,
) -> SearchLimits:
    """Return checked limits; the deadline counts from now."""
    expected = "a number that is not negative"
    return SearchLimits(
        gap=checked_number("gap", gap, expected, lambda x: 0.0 <= x < math.inf),
        max_nodes=None if max_nodes is None else checked_count("max_nodes", max_nodes, ", or None"),
        deadline=Deadline(CONVERTERS["max_time"](max_time)),
        threads=threads_or_default(threads),
        report=report,
    )


def checked_rank(k: Any) -> int:
    """Return how many of the best assignments are asked for.

    Raises
    ------
    TypeError
        If that is no integer.
    ValueError
        If it is less than 1, or more than can be kept.
    """
    found = checked_count("k_best: k", k)
    if found > MOST_RANKED:
        raise ValueError(
            f"k_best: k: got {found}; expected at most {MOST_RANKED}, since all are kept."
        )
    return found


def options_for_search(options: Options, limits: SearchLimits) -> Options:
    """Return the options of a relaxation that a search sets out from."""
    limit = None if options.max_time is None else SHARE * options.max_time
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
    ImportError
        If no decoder is installed, or not what the solver needs.
    """
    search_limits(gap, max_time, max_nodes, threads, None)
    decoder = installed_decoder("exact search")
    decoder.check_solver(solver, limited=max_nodes is not None)
