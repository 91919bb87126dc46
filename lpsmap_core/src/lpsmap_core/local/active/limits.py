"""The iteration limits of active sets without a limit from the user."""

from __future__ import annotations

from lpsmap_core.local.active.memory import n_newcomers
from lpsmap_core.local.active.record_access import LocalProblem
from lpsmap_jit.compile import leaf

__all__ = ["UNTIL_SOLVED", "SHORT_RUN", "iteration_limit"]

UNTIL_SOLVED, SHORT_RUN = 0, -1
"""Limits that depend on the factors: as many iterations as a solution needs, or a few, for problems
that are followed by similar ones soon."""

ITERATIONS_OF_A_DIMENSION, MIN_LIMIT = 10, 1_000
"""Iterations per dimension, and the smallest limit. A face has at most as many dimensions as its
factor has slots and additionals. Each takes about one iteration, or three if structures join and
leave."""

EXCHANGES = 50
"""Factor of the limit if there are additionals. Among structures with the same marginals the
additional scores decide, and a set exchanges them like the simplex method. Nearly uniform sequences
of 50 words took up to 130 iterations per dimension."""

MIN_FIRST_LIMIT, ROUNDS_OF_A_START = 5, 3
"""Smallest number of iterations of a start, and the number of times that a large set takes in
structures. Early local problems need no complete solution, because their sets stay warm for the
next ones. A component converges only once its local problems are solved."""


@leaf
def iteration_limit(limit: int, f: int, count: int, problem: LocalProblem) -> int:
    """Return the number of iterations of a factor with an active set of `count` structures.

    The `limit` may be `UNTIL_SOLVED` or `SHORT_RUN`.
    """
    if limit == SHORT_RUN:
        return max(MIN_FIRST_LIMIT, ROUNDS_OF_A_START * n_newcomers(count))
    if limit != UNTIL_SOLVED:
        return limit
    n_additionals = problem.additional_offsets[f + 1] - problem.additional_offsets[f]
    dimension = int(problem.offsets[f + 1] - problem.offsets[f] + n_additionals)
    times = EXCHANGES if n_additionals > 0 else 1
    return times * (ITERATIONS_OF_A_DIMENSION * dimension + MIN_LIMIT)
