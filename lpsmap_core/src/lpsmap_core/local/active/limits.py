"""How many iterations active sets get where the user sets no limit."""

from __future__ import annotations

from typing import Any

from lpsmap_core.local.active.handle import LocalProblem, largest_count
from lpsmap_core.local.active.memory import newcomers
from lpsmap_jit.arrays import IntArray
from lpsmap_jit.compile import leaf

__all__ = ["AS_NEEDED", "A_FEW", "iteration_limit"]

AS_NEEDED, A_FEW = 0, -1
"""Limits that follow from the factors: as many iterations as solutions take; or a start, where the
next problems come soon, and are much the same."""

ITERATIONS_OF_A_DIMENSION, FEWEST_NEEDED = 10, 1_000
"""A face has no more dimensions than its factor has slots and additionals, and each takes about one
iteration. Where structures come and go it was three."""

EXCHANGES = 50
"""How many times as many it may be where there are additionals. Among structures of the same
marginals their scores decide, and a set goes through these as the simplex method does: nearly
uniform sequences of 50 words took up to 130 iterations a dimension."""

FEWEST_OF_A_START, ROUNDS_OF_A_START = 5, 3
"""Iterations of a start, and how often a large set takes structures in. Early local problems need
not be solved to the end, since their sets are warm when the next ones come; but none converges
before they are."""


@leaf
def iteration_limit(asked: int, sets: Any, rows: IntArray, problem: LocalProblem) -> int:
    """Return a limit as asked for, or what it stands for."""
    if asked == A_FEW:
        return max(FEWEST_OF_A_START, ROUNDS_OF_A_START * newcomers(largest_count(sets, rows)))
    if asked != AS_NEEDED:
        return asked
    offsets, additional_offsets, most, extra = problem.offsets, problem.additional_offsets, 0, 0
    for f in rows:
        n_additionals = additional_offsets[f + 1] - additional_offsets[f]
        most = max(most, offsets[f + 1] - offsets[f] + n_additionals)
        extra = max(extra, n_additionals)
    times = EXCHANGES if extra > 0 else 1
    return times * (ITERATIONS_OF_A_DIMENSION * most + FEWEST_NEEDED)
