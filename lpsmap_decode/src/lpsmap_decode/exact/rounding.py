"""Rounding of marginals to assignments, by the oracles of the factors.

The first attempt rounds the marginals. In the others, the factors of one bucket choose the
structures nearest to the marginals. If these violate other factors, the marginals move towards the
structures that those factors prefer, and the bucket chooses again, until all agree or a limit is
reached. If nothing is feasible, all count constraints are solved jointly: the rows and columns of a
matching never agree one by one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from lpsmap_core.api import BoolArray, Bucket, FloatArray, Part, best_feasible
from lpsmap_decode.counts.simplex import FOUND, CountProgram, best_vertex
from lpsmap_decode.results.assignment_score import score_assignment
from lpsmap_dynamic import best_additionals, count_bounds

__all__ = ["round_towards"]

REPAIRS, STEP = 20, 0.2
"""Maximum number of repairs, and the step by which marginals move towards other factors."""

MAX_COUNT_VARIABLES = 2000
"""Maximum number of variables of a component whose count constraints are solved jointly."""


def round_towards(
    part: Part, eta: FloatArray, eta_v: FloatArray, towards: FloatArray, patience: float
) -> tuple[BoolArray, FloatArray]:
    """Return the best assignment found for each copy of a component, and its score.

    Parameters
    ----------
    part
        The copies.
    eta
        Scores of one copy's variables.
    eta_v
        Scores of the additionals of all copies; ``-inf`` forbids.
    towards
        (n_copies, n_variables) marginals minus 1/2; infinite for fixed variables.
    patience
        Seconds to continue while no assignment is allowed.
    """
    best, begin = towards > 0.0, time.monotonic()
    best_scores, _ = score_assignment(part, eta, eta_v, best)
    for b, bucket in enumerate(part.buckets):
        count = np.bincount(bucket.variable)
        if 2 * bucket.n_links < towards.size or (count > 1).any():
            continue  # it covers too few variables, or a variable twice
        pushed = towards
        for _ in range(REPAIRS):
            near = best.copy()
            near.reshape(-1)[bucket.variable] = _nearest(part, b, eta_v, pushed) != bucket.negated
            scores, _ = score_assignment(part, eta, eta_v, near)
            better = scores > best_scores
            best = np.where(better[:, None], near, best)
            best_scores = np.where(better, scores, best_scores)
            if (best_scores > -np.inf).any() or time.monotonic() - begin >= patience:
                break
            pushed = pushed + STEP * _repair_direction(part, b, eta_v, near, pushed)
    if patience > 0.0 and not (best_scores > -np.inf).any():
        best[0] = _nearest_count_vertex(part, towards)
        best_scores, _ = score_assignment(part, eta, eta_v, best)
    return best, best_scores


def _nearest(part: Part, b: int, eta_v: FloatArray, towards: FloatArray) -> BoolArray:
    """Return which slots are on in the structures of a bucket nearest to the marginals."""
    bucket: Bucket = part.buckets[b]
    slots = np.where(bucket.negated, -1.0, 1.0) * towards.reshape(-1)[bucket.variable]
    forbidden = np.isneginf(eta_v[part.additionals_of(b)])
    none = np.zeros(bucket.n_additionals)
    w, _ = best_feasible(bucket, slots, none, forbidden)
    found: BoolArray = w > 0.5
    return found


def _nearest_count_vertex(part: Part, towards: FloatArray) -> BoolArray:
    """Return the assignment nearest to the marginals of the first copy under its count constraints.

    All vertices of the program are integral if the constraints are rows and columns of a matrix,
    intervals, or a tree.
    """
    n_copies, n = towards.shape
    nearest: BoolArray = towards[0] > 0.0
    if n > MAX_COUNT_VARIABLES:
        return nearest
    program, vertex = _count_program(part.buckets, n_copies, towards[0]), np.empty(n)
    if program is not None and best_vertex(program, vertex, np.zeros(len(program.low))) == FOUND:
        nearest = vertex > 0.5
    return nearest


def _count_program(
    buckets: Sequence[Bucket], n_copies: int, eta: FloatArray
) -> CountProgram | None:
    """Return the program of the count constraints of the first copy; None if it has none."""
    first = [bucket.select(np.arange(bucket.n_factors // n_copies)) for bucket in buckets]
    found = [(one, bounds) for one in first if (bounds := count_bounds(one)) is not None]
    if not found:
        return None
    negated = np.concatenate([one.negated for one, _ in found])
    arity = np.concatenate([np.diff(one.offsets) for one, _ in found])
    owner, ends = np.repeat(np.arange(len(arity)), arity), np.cumsum(arity)
    bounds = np.concatenate([bounds for _, bounds in found], axis=1)
    low, high = bounds - np.bincount(owner, negated, minlength=len(arity))
    return CountProgram(
        eta=eta,
        first=0,
        variable=np.concatenate([one.variable for one, _ in found]),
        negated=negated,
        begin=ends - arity,
        end=ends,
        low=low,
        high=high,
    )


def _repair_direction(
    part: Part, leading: int, eta_v: FloatArray, chosen: BoolArray, towards: FloatArray
) -> FloatArray:
    """Return the direction to the structures that violated factors of other buckets prefer."""
    allowed, _ = best_additionals(part, eta_v, chosen.reshape(-1))
    wish, first = np.zeros(chosen.size), 0
    for b, bucket in enumerate(part.buckets):
        wrong = ~allowed[first : first + bucket.n_factors]
        first += bucket.n_factors
        if b == leading or not wrong.any():
            continue
        of_slot = np.repeat(wrong, np.diff(bucket.offsets))
        variable = bucket.variable[of_slot]
        wanted = (_nearest(part, b, eta_v, towards) != bucket.negated)[of_slot]
        np.add.at(wish, variable, wanted * 1.0 - chosen.reshape(-1)[variable])
    return wish.reshape(chosen.shape)
