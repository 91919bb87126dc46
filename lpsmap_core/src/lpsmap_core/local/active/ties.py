"""Tied structures: those that could be active as well and that the derivative needs.

The derivative of a projection is the projection onto the affine hull of the face that contains the
solution. The active structures may span a part of it only. The oracle therefore gets the scores at
the solution, tilted along a random direction that is orthogonal to their affine hull, and thus
prefers a structure outside of it. It returns one inside exactly if they span the whole face. Every
other answer either adds a dimension, of which a face has at most as many as its factor has slots,
or is no structure of the face because the tilt outweighs its gap. The tilt is then reduced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lpsmap_core.local.active.gram import append_structures, make_gram_workspace
from lpsmap_core.local.active.memory import (
    is_full,
    problem_of,
    set_of,
    sets_at,
)
from lpsmap_core.local.active.steps import (
    GAP_ROUNDING,
    copy_candidate,
    make_oracle_scores_finite,
    optimality_gap,
)
from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.compile import general_position, kernel, leaf
from lpsmap_jit.interrupts import interrupted

TIE_TOLERANCE = 1e-12
"""Relative gap up to which a structure is tied with the active ones."""

MAX_TILT, MIN_TILT, TILT_RATIO = 1e-8, 1e-12, 1e-2
"""Relative changes of the scores that make the oracle choose other tied structures. The smallest
still exceeds the rounding of scores."""


@leaf
def draw_wave(rows: IntArray, offsets: IntArray, attempt: int, wave: FloatArray) -> None:
    """Write numbers in general position, which depend only on the slot and the attempt."""
    for f in rows:
        for i in range(offsets[f], offsets[f + 1]):
            wave[i] = general_position(i - offsets[f], attempt)


@kernel
def tilt_scores(
    sets: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    wave: FloatArray,
    along: FloatArray,
    tilt: FloatArray,
) -> None:
    """Write the oracle's scores at `z`, tilted by the wave's part orthogonal to the simplex."""
    problem, scores = problem_of(sets, a, eta_v), sets_at(sets).scores
    for f in rows:
        lo, hi = problem.offsets[f], problem.offsets[f + 1]
        largest = 0.0
        for i in range(lo, hi):
            scores[i] = (problem.a[i] - z[i]) * problem.inverse_delta[i]
            if abs(problem.a[i]) < np.inf:
                largest = max(largest, abs(scores[i]))
        for i in range(lo, hi):
            off = (wave[i] - along[i]) * problem.inverse_delta[i]
            scores[i] += tilt[f] * (largest + 1.0) * off
        make_oracle_scores_finite(f, problem, scores[lo:hi])


@kernel
def add_tied(
    sets: Any,
    rows: IntArray,
    a: FloatArray,
    eta_v: FloatArray,
    z: FloatArray,
    tilt: FloatArray,
) -> bool:
    """Add each factor's candidate with weight zero if it is tied and independent.

    Reduces the tilt of a factor whose candidate is not tied, and sets it to zero if the face is
    complete, as far as rounding allows to say. Returns whether an active set is full.
    """
    problem, candidates, full = problem_of(sets, a, eta_v), sets_at(sets).candidates, False
    work = make_gram_workspace(sets, rows)
    for f in rows:
        active_set, lo, hi = set_of(sets, f), problem.offsets[f], problem.offsets[f + 1]
        count = active_set.active[0]
        place = active_set.order[count]
        copy_candidate(f, place, active_set, candidates, hi - lo)
        gap, rounding = optimality_gap(f, place, problem, active_set, z)
        if gap < -TIE_TOLERANCE / GAP_ROUNDING * rounding:
            tilt[f] = tilt[f] * TILT_RATIO if tilt[f] > MIN_TILT else 0.0
            continue
        active_set.p[count] = 0.0
        joined = append_structures(count, 1, active_set, problem.inverse_delta[lo:hi], work, True)
        if joined == 0 or active_set.active[0] > hi - lo:
            tilt[f] = 0.0
        full |= is_full(active_set)
        if interrupted():
            break
    return full
