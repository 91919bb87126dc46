"""Limits of a search, its progress, and the options of the relaxation from which it starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lpsmap_core import Deadline, Options
from lpsmap_core.api import DEFAULT_GAP, checked_count, checked_number, checked_options

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


Report = Callable[[int, SearchProgress], None]
"""Takes the number of a component and the progress of its search."""


class SearchLimits(NamedTuple):
    """Limits of a search, and its resources."""

    gap: float
    """A bound within ``gap * max(unit, abs(score))`` of the score is a proof; see `score_units`."""
    max_nodes: int | None
    """Maximum number of nodes of each component's search; 0 for no search."""
    deadline: Deadline
    threads: int
    report: Report | None = None
    precedes_solver: bool = False
    """Whether an external solver follows, which heuristics at the limit of nodes would delay."""


def search_limits(
    gap: Any = DEFAULT_GAP,
    max_time: Any = None,
    max_nodes: Any = None,
    threads: Any = None,
    progress: Any = None,
) -> SearchLimits:
    """Return validated limits, with a deadline that starts now.

    The arguments are those of `FactorGraph.solve_map`.
    """
    expected = "a number that is not negative"
    of_solve = checked_options(max_time=max_time, threads=threads)
    return SearchLimits(
        gap=checked_number("gap", gap, expected, lambda x: 0.0 <= x < math.inf),
        max_nodes=None if max_nodes is None else checked_count("max_nodes", max_nodes, ", or None"),
        deadline=Deadline(of_solve.max_time),
        threads=of_solve.threads,
        report=progress,
    )


def options_for_search(options: Options, limits: SearchLimits) -> Options:
    """Return the options of the relaxation from which a search starts."""
    limit = None if options.max_time is None else RELAXATION_SHARE * options.max_time
    tol = min(options.tol, PROVING_TOLERANCE)
    return options._replace(tol=tol, max_time=limit, within=limits.deadline, exact=True)
