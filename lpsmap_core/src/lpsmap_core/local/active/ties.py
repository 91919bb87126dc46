"""Tied structures: those that could be active as well and that the derivative needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.kernels.records import Structures, largest_arity
from lpsmap_core.local.active.gram import append_structures, make_gram_workspace
from lpsmap_core.local.active.memory import is_full
from lpsmap_core.local.active.record_access import (
    LocalProblem,
    find_candidates,
    grow_sets,
    largest_capacity,
    problem_of,
    release_triangles,
    set_of,
    sets_at,
)
from lpsmap_core.local.active.steps import (
    GAP_ROUNDING,
    copy_candidate,
    make_oracle_scores_finite,
    multiply_faces,
    optimality_gap,
)
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray
from lpsmap_jit.compile import general_position, kernel, leaf
from lpsmap_jit.interrupts import interrupted

__all__ = ["complete_faces"]

TIE_TOLERANCE = 1e-12
"""Relative gap up to which a structure is tied with the active ones."""

TILT = 1e-8
"""Relative change of the scores that makes the oracle choose other tied structures."""

MOST_TIED = 200
"""Limit of tilted oracle calls for a factor."""


@kernel
def complete_faces(
    sets: Any, rows: IntArray, a: FloatArray, eta_v: FloatArray, z: FloatArray
) -> None:
    """Complete the faces of `rows`; see `ActiveSets.complete_faces`."""
    problem, record = problem_of(sets, a, eta_v), sets_at(sets)
    scores, candidates = record.scores, record.candidates
    wave, along, nothing = np.zeros(len(a)), np.zeros(len(a)), np.empty(0)
    everything, waves = rows, problem_of(sets, wave, nothing)
    adopted = np.zeros(len(problem.offsets) - 1, dtype=np.bool_)
    for attempt in range(MOST_TIED):
        if len(rows) == 0:
            break
        _draw_wave(rows, problem.offsets, attempt, wave)
        multiply_faces(sets, rows, waves, along, nothing)
        _tilt(rows, problem, z, wave, along, scores)
        if not find_candidates(sets, rows, eta_v):
            break
        if _add_tied(sets, rows, problem, candidates, z, adopted) and not grow_sets(sets, rows):
            break
        rows = _select(rows, adopted)
    release_triangles(sets, everything)


@leaf
def _draw_wave(rows: IntArray, offsets: IntArray, attempt: int, wave: FloatArray) -> None:
    """Write numbers in general position, which depend only on the slot and the attempt."""
    for f in rows:
        for i in range(offsets[f], offsets[f + 1]):
            wave[i] = general_position(i - offsets[f], attempt)


@leaf
def _tilt(
    rows: IntArray,
    problem: LocalProblem,
    z: FloatArray,
    wave: FloatArray,
    along: FloatArray,
    scores: FloatArray,
) -> None:
    """Write the oracle's scores at `z`, tilted by the wave's part orthogonal to the simplex."""
    for f in rows:
        lo, hi = problem.offsets[f], problem.offsets[f + 1]
        largest = 0.0
        for i in range(lo, hi):
            scores[i] = (problem.a[i] - z[i]) * problem.inverse_delta[i]
            if abs(problem.a[i]) < np.inf:
                largest = max(largest, abs(scores[i]))
        for i in range(lo, hi):
            off = (wave[i] - along[i]) * problem.inverse_delta[i]
            scores[i] += TILT * (largest + 1.0) * off
        make_oracle_scores_finite(f, problem, scores[lo:hi])


@kernel
def _add_tied(
    sets: Any,
    rows: IntArray,
    problem: LocalProblem,
    candidates: Structures,
    z: FloatArray,
    adopted: BoolArray,
) -> bool:
    """Add each factor's candidate with weight zero if it is tied and independent.

    Marks in `adopted` the factors whose candidates joined; returns whether an active set is full.
    """
    work = make_gram_workspace(largest_capacity(sets, rows), largest_arity(rows, problem.offsets))
    full = False
    for f in rows:
        own, lo, hi = set_of(sets, f), problem.offsets[f], problem.offsets[f + 1]
        adopted[f] = False
        place = own.order[own.active[0]]
        copy_candidate(f, place, own, candidates, hi - lo)
        gap, rounding = optimality_gap(f, place, problem, own, z)
        if gap < -TIE_TOLERANCE / GAP_ROUNDING * rounding:
            continue
        own.p[own.active[0]] = 0.0
        if append_structures(own.active[0], 1, own, problem.inverse_delta[lo:hi], work, True) == 1:
            adopted[f] = True
            full |= is_full(own)
        if interrupted():
            break
    return full


@kernel
def _select(rows: IntArray, chosen: BoolArray) -> IntArray:
    """Return the chosen rows."""
    kept, n = np.empty(len(rows), dtype=np.int64), 0
    for f in rows:
        if chosen[f]:
            kept[n] = f
            n += 1
    return kept[:n]
