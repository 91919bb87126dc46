"""What the kernels of active sets know of the sets of one bucket, and what they ask for.

Compiled loops know the sets by their record (see `lpsmap_core.kernels.native`), from which the
functions here read where everything is; where kernels are interpreted, by the object itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.kernels.arrays import ByteArray, FloatArray, IntArray
from lpsmap_core.kernels.compile import interpreted_by, kernel, leaf
from lpsmap_core.kernels.interrupts import halt, interrupted
from lpsmap_core.kernels.native import (
    CALL,
    FAILED,
    FORBIDS,
    STATUS,
    ask_python,
    bytes_at,
    factors_at,
    floats,
    floats_at,
    ints_at,
    invoke,
    structures_at,
    words_of,
)
from lpsmap_core.kernels.records import Factors, Scores, Structures
from lpsmap_core.local.active.answers import first_unsound, forget_sizes
from lpsmap_core.local.active.memory import ActiveSet, carve_set
from lpsmap_core.local.protocol import OWN_ARRAYS

__all__ = [
    "AFTER",
    "ARRAYS",
    "ASK",
    "GIVE_BACK",
    "GROW",
    "LARGE_SET",
    "MAP",
    "REFUSE",
    "LocalProblem",
    "call_solver",
    "candidates_of",
    "find_candidates",
    "give_back_triangles",
    "grow_sets",
    "largest_capacity",
    "largest_count",
    "problem_of",
    "scores_of",
    "set_of",
    "status_of",
]

SHARE = 100_000
"""Links of the factors that an oracle is called for at once, unless one alone has more."""


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

MAP, ARRAYS = OWN_ARRAYS, OWN_ARRAYS + 1
_INVERSE_DELTA = ARRAYS + words_of(Factors)
_SCORES, _CANDIDATES = _INVERSE_DELTA + 2, _INVERSE_DELTA + 4
_SETS = _CANDIDATES + words_of(Structures)
_BARRED = _SETS + 12
AFTER = _BARRED + 2
"""Positions in the record: the oracle's address, where arrays are, and what follows them, which a
subclass may have."""


def _problem_of(sets: Any, a: FloatArray, eta_v: FloatArray) -> LocalProblem:
    offsets, additional_offsets = sets.bucket.offsets, sets.bucket.additional_offsets
    inverse_delta, forbids, barred = sets.inverse_delta, sets.forbids, sets.barred
    return LocalProblem(offsets, additional_offsets, inverse_delta, a, eta_v, forbids, barred)


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
    width, capacity = ints_at(sets, _SETS)[f], ints_at(sets, _SETS + 2)[f]
    block = floats(ints_at(sets, _SETS + 4)[f], ints_at(sets, _SETS + 6)[f])
    active, waiting = ints_at(sets, _SETS + 8), ints_at(sets, _SETS + 10)
    status, last = ints_at(sets, STATUS), f + 1
    return carve_set(block, width, capacity, active[f:last], waiting[f:last], status[f:last])


@interpreted_by(lambda sets: sets.status)
@kernel
def status_of(sets: Any) -> IntArray:
    """Return the status of the bucket's factors."""
    return ints_at(sets, STATUS)  # type: ignore[no-any-return]


@interpreted_by(lambda sets, rows: sets.capacity[rows].max(initial=0))
@leaf
def largest_capacity(sets: Any, rows: IntArray) -> int:
    """Return how many structures the largest of some sets has room for."""
    capacity, largest = ints_at(sets, _SETS + 2), 0
    for f in rows:
        largest = max(largest, capacity[f])
    return largest


@interpreted_by(lambda sets, rows: sets.active[rows].max(initial=0))
@leaf
def largest_count(sets: Any, rows: IntArray) -> int:
    """Return how many structures the largest of some sets has."""
    active, largest = ints_at(sets, _SETS + 8), 0
    for f in rows:
        largest = max(largest, active[f])
    return largest


@interpreted_by(lambda sets: sets.candidates)
@kernel
def candidates_of(sets: Any) -> Structures:
    """Return where the oracle writes the factors' best structures."""
    return structures_at(sets, _CANDIDATES)  # type: ignore[no-any-return]


@interpreted_by(lambda sets: sets.scores)
@kernel
def scores_of(sets: Any) -> FloatArray:
    """Return where the scores stand that the oracle sees."""
    return floats_at(sets, _SCORES)  # type: ignore[no-any-return]


@interpreted_by(_problem_of)
@kernel
def problem_of(sets: Any, a: FloatArray, eta_v: FloatArray) -> LocalProblem:
    """Return what the sets solve for some scores."""
    factors = factors_at(sets, ARRAYS)
    return LocalProblem(
        factors.offsets,
        factors.additional_offsets,
        floats_at(sets, _INVERSE_DELTA),
        a,
        eta_v,
        sets[FORBIDS] != 0,
        bytes_at(sets, _BARRED),
    )


@interpreted_by(_find_candidates)
@kernel
def find_candidates(sets: Any, rows: IntArray, eta_v: FloatArray) -> bool:
    """Write the best structures of `rows`; false if Python code raised, or if interrupted."""
    if sets[MAP] == 0:
        sets[FAILED] = call_solver(sets, ASK, rows, eta_v)
        return sets[FAILED] == 0 and not interrupted()
    factors, begin = factors_at(sets, ARRAYS), 0
    scores, candidates = Scores(scores_of(sets), eta_v), candidates_of(sets)
    while begin < len(rows):
        end = _end_of_share(rows, begin, factors.offsets)
        share = rows[begin:end]
        forget_sizes(share, candidates)
        invoke(sets[MAP], (share, factors, scores, candidates))
        if interrupted():
            return False
        wrong = first_unsound(share, factors, candidates)
        if wrong >= 0:
            sets[FAILED] = call_solver(sets, REFUSE, share[wrong : wrong + 1], eta_v)
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
def call_solver(sets: Any, what: int, rows: IntArray, eta_v: FloatArray) -> int:
    """Let Python work on some rows; returns 0 unless it raised, on which all come out."""
    given = np.ascontiguousarray(rows), np.ascontiguousarray(eta_v)
    failed: int = ask_python(sets[CALL], what, given)
    if failed:
        halt()
    return failed


@interpreted_by(_grow_sets)
@kernel
def grow_sets(sets: Any, rows: IntArray) -> bool:
    """Make room for more structures; false if Python code raised."""
    sets[FAILED] = call_solver(sets, GROW, rows, floats_at(sets, _SCORES))
    return sets[FAILED] == 0  # type: ignore[no-any-return]


@interpreted_by(lambda sets, rows: sets.give_back(rows))
@kernel
def give_back_triangles(sets: Any, rows: IntArray) -> None:
    """Let large sets that have come to their end give back what can be made again."""
    if largest_count(sets, rows) >= LARGE_SET and sets[FAILED] == 0:
        sets[FAILED] = call_solver(sets, GIVE_BACK, rows, floats_at(sets, _SCORES))
