"""What the kernels of active sets know of the sets of one bucket, and what they ask for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.kernels.entries import reader_of
from lpsmap_core.kernels.records import Factors, Scores, Structures
from lpsmap_core.local.active.answers import first_unsound, forget_sizes
from lpsmap_core.local.active.memory import ActiveSet, carve_set
from lpsmap_core.local.protocol import Question, call_solver, has_failed
from lpsmap_jit.arrays import ByteArray, FloatArray, IntArray
from lpsmap_jit.by_address import by_value
from lpsmap_jit.compile import interpreted_by, kernel, leaf
from lpsmap_jit.interrupts import interrupted
from lpsmap_jit.native import floats, invoke

__all__ = [
    "ASK",
    "GIVE_BACK",
    "GROW",
    "LARGE_SET",
    "REFUSE",
    "LocalProblem",
    "SetsRecord",
    "call_sets",
    "find_candidates",
    "give_back_triangles",
    "grow_sets",
    "largest_capacity",
    "largest_count",
    "problem_of",
    "set_of",
    "sets_at",
    "status_of",
]

SHARE = 100_000
"""Links of the factors that an oracle is called for at once, unless one alone has more."""


class SetsRecord(NamedTuple):
    """What the kernels know of the sets of a bucket."""

    map_kernel: int
    """The address of the oracle; 0 if it is Python's."""
    factors: Factors
    inverse_delta: FloatArray
    scores: FloatArray
    """Where the scores stand that the oracle sees."""
    candidates: Structures
    """Where the oracle writes the factors' best structures."""
    width: IntArray
    capacity: IntArray
    address: IntArray
    """Of each set's block, which moves when the set grows."""
    length: IntArray
    active: IntArray
    waiting: IntArray
    status: IntArray
    forbids: int
    """Whether any slot may be forced, or any additional barred."""
    barred: ByteArray


sets_at = reader_of(SetsRecord, "sets")
"""Returns, in kernels, the record of the sets that they are called with."""


class LocalProblem(NamedTuple):
    """What the kernels need to know of a bucket and of its current scores."""

    offsets: IntArray
    additional_offsets: IntArray
    inverse_delta: FloatArray
    a: FloatArray
    """Infinite in forced slots. All structures of a feasible face agree on these, so that they are
    left out of sums whose differences matter."""
    eta_v: FloatArray
    forbids: bool
    """Whether any slot may be forced, or any additional barred."""
    barred: ByteArray


GROW, ASK, GIVE_BACK, REFUSE = 0, 1, 2, 3
"""What compiled loops call Python for."""

LARGE_SET = 1_000
"""Structures from which on a triangle is worth giving back: four megabytes."""


def _find_candidates(sets: Any, rows: IntArray, eta_v: FloatArray) -> bool:
    sets.solve_map(rows, eta_v)
    return not interrupted()


def _grow_sets(sets: Any, rows: IntArray) -> bool:
    sets.grow(rows)
    return True


@interpreted_by(lambda sets, f: sets.set_of(f))
@kernel
def set_of(sets: Any, f: int) -> ActiveSet:
    """Return the active set of a factor."""
    own, last = sets_at(sets), f + 1
    return carve_set(
        floats(own.address[f], own.length[f]),
        own.width[f],
        own.capacity[f],
        own.active[f:last],
        own.waiting[f:last],
        own.status[f:last],
    )


@kernel
def status_of(sets: Any) -> IntArray:
    """Return the status of the bucket's factors."""
    return sets_at(sets).status  # type: ignore[no-any-return]


@leaf
def largest_capacity(sets: Any, rows: IntArray) -> int:
    """Return how many structures the largest of some sets has room for."""
    capacity, largest = sets_at(sets).capacity, 0
    for f in rows:
        largest = max(largest, capacity[f])
    return largest


@leaf
def largest_count(sets: Any, rows: IntArray) -> int:
    """Return how many structures the largest of some sets has."""
    active, largest = sets_at(sets).active, 0
    for f in rows:
        largest = max(largest, active[f])
    return largest


@kernel
def problem_of(sets: Any, a: FloatArray, eta_v: FloatArray) -> LocalProblem:
    """Return what the sets solve for some scores."""
    own = sets_at(sets)
    factors = own.factors
    return LocalProblem(
        factors.offsets,
        factors.additional_offsets,
        own.inverse_delta,
        a,
        eta_v,
        own.forbids != 0,
        own.barred,
    )


@interpreted_by(_find_candidates)
@kernel
def find_candidates(sets: Any, rows: IntArray, eta_v: FloatArray) -> bool:
    """Write the best structures of `rows`; false if Python code raised, or if interrupted."""
    own = sets_at(sets)
    if own.map_kernel == 0:
        return call_sets(sets, ASK, rows, eta_v) and not interrupted()
    factors, candidates, begin = by_value(own.factors), by_value(own.candidates), 0
    scores = Scores(own.scores, eta_v)
    while begin < len(rows):
        end = _end_of_share(rows, begin, factors.offsets)
        share = rows[begin:end]
        forget_sizes(share, candidates)
        invoke(own.map_kernel, (share, factors, scores, candidates))
        if interrupted():
            return False
        wrong = first_unsound(share, factors, candidates)
        if wrong >= 0:
            call_sets(sets, REFUSE, share[wrong : wrong + 1], eta_v)
            return False
        begin = end
    return True


@leaf
def _end_of_share(rows: IntArray, begin: int, offsets: IntArray) -> int:
    """Return where the rows end that an oracle is called for at once."""
    if offsets[-1] <= SHARE:
        return len(rows)
    n_links = 0
    for i in range(begin, len(rows)):
        n_links += offsets[rows[i] + 1] - offsets[rows[i]]
        if n_links >= SHARE:
            return i + 1
    return len(rows)


@kernel
def call_sets(sets: Any, what: int, rows: IntArray, eta_v: FloatArray) -> bool:
    """Let Python work on some rows; false if it raised, on which all come out."""
    rows, nothing = np.ascontiguousarray(rows), np.empty(0)
    return call_solver(sets, what, Question(rows, nothing, eta_v, nothing, nothing, 0))


@interpreted_by(_grow_sets)
@kernel
def grow_sets(sets: Any, rows: IntArray) -> bool:
    """Make room for more structures; false if Python code raised."""
    return call_sets(sets, GROW, rows, np.empty(0))


@interpreted_by(lambda sets, rows: sets.give_back(rows))
@kernel
def give_back_triangles(sets: Any, rows: IntArray) -> None:
    """Let large sets that have come to their end give back what can be made again."""
    if largest_count(sets, rows) >= LARGE_SET and not has_failed(sets):
        call_sets(sets, GIVE_BACK, rows, np.empty(0))
