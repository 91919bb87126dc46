"""The iteration limits of active sets without a limit from the user."""

from __future__ import annotations

from typing import Any

from lpsmap_core.local.active.memory import n_newcomers
from lpsmap_core.local.active.record_access import LocalProblem, largest_count
from lpsmap_jit.arrays import IntArray
from lpsmap_jit.compile import leaf

__all__ = ["UNTIL_SOLVED", "SHORT_RUN", "iteration_limit"]

UNTIL_SOLVED, SHORT_RUN = 0, -1
"""Limits that depend on the factors: as many iterations as a solution needs, or a few, for problems
that are followed by similar ones soon."""

ITERATIONS_OF_A_DIMENSION, FEWEST_NEEDED = 10, 1_000
"""Iterations per dimension, and the smallest limit. A face has at most as many dimensions as its
factor has slots and additionals. Each takes about one iteration, or three if structures join and
leave."""

EXCHANGES = 50
"""Factor of the limit if there are additionals. Among structures with the same marginals the
additional scores decide, and a set exchanges them like the simplex method. Nearly uniform sequences
of 50 words took up to 130 iterations per dimension."""

FEWEST_OF_A_START, ROUNDS_OF_A_START = 5, 3
"""Smallest number of iterations of a start, and the number of times that a large set takes in
structures. Early local problems need no complete solution, because their sets stay warm for the
next ones. A component converges only once its local problems are solved."""


@leaf
def iteration_limit(limit: int, sets: Any, rows: IntArray, problem: LocalProblem) -> int:
    """Return the number of iterations for a limit, which may be `UNTIL_SOLVED` or `SHORT_RUN`."""
    if limit == SHORT_RUN:
        return max(FEWEST_OF_A_START, ROUNDS_OF_A_START * n_newcomers(largest_count(sets, rows)))
    if limit != UNTIL_SOLVED:
        return limit
    offsets, additional_offsets, most, extra = problem.offsets, problem.additional_offsets, 0, 0
    for f in rows:
        n_additionals = additional_offsets[f + 1] - additional_offsets[f]
        most = max(most, offsets[f + 1] - offsets[f] + n_additionals)
        extra = max(extra, n_additionals)
    times = EXCHANGES if extra > 0 else 1
    return times * (ITERATIONS_OF_A_DIMENSION * most + FEWEST_NEEDED)
