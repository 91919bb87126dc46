"""Depth-first search with propagation: complete the assignment, and backtrack from dead ends.

The search fixes columns to their preferred values, in a given order, or first serves the rows that
lack something, the one with the fewest choices first (Haralick & Elliott 1980). Rows that ran into
dead ends count more (Boussemart et al. 2004), also in the next search. Every assignment raises the
lower side of the objective, so that an exhausted search is a proof.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import ByteArray, FloatArray, IntArray
from lpsmap_decode.heuristics.propagation import OPEN, Domain, enqueue, fix, propagate, undo
from lpsmap_decode.heuristics.rows import Rows

__all__ = ["EXHAUSTED", "STOPPED", "complete"]

STOPPED, EXHAUSTED, GOING_ON = 0, 1, 2
"""The search reached its limit, or no better assignment is left; or neither."""

LEVEL, PLACE, N_DEAD = 0, 1, 2
"""Entries of `_Path.state`: the number of decisions, the place in the order, and the dead ends."""

POLL_PERIOD = 64
"""Decisions between two checks for interrupts."""


class _Path(NamedTuple):
    """The decisions of a search."""

    mark: IntArray
    """For each decision, the length of the trail before it."""
    column: IntArray
    place: IntArray
    """For each decision, the place in the order before it."""
    state: IntArray


@leaf
def _neediest(rows: Rows, domain: Domain, weight: FloatArray) -> int:
    """Return the row that lacks something with the fewest open columns by weight, or -1."""
    best, least = -1, np.inf
    for r in range(len(rows.low) - 1):
        if domain.n_open[r] > 0 and domain.least[r] < rows.low[r] - rows.slack[r]:
            choices = domain.n_open[r] / weight[r]
            if choices < least:
                best, least = r, choices
    return best


@leaf
def _first_in_row(rows: Rows, domain: Domain, r: int, rank: IntArray) -> int:
    """Return the open column of a row that comes first in the order."""
    best, first = -1, len(rank)
    for e in range(rows.first[r], rows.first[r + 1]):
        column = rows.column[e]
        if domain.value[column] == OPEN and rank[column] < first:
            best, first = column, rank[column]
    return best


@leaf
def _direction(rows: Rows, r: int, column: int) -> int:
    """Return the value of a column that raises the sum of a row."""
    for e in range(rows.first_of_column[column], rows.first_of_column[column + 1]):
        if rows.row[e] == r:
            return 1 if rows.coefficient_of_column[e] > 0.0 else 0
    return 1


@leaf
def _keep(rows: Rows, domain: Domain, gain: float, best: ByteArray) -> float:
    """Write an assignment, raise the lower side of the objective, and return the score."""
    objective, score = len(rows.low) - 1, 0.0
    for e in range(rows.first[objective], rows.first[objective + 1]):
        score += rows.coefficient[e] * domain.value[rows.column[e]]
    rows.low[objective] = score + gain
    for column in range(len(best)):
        best[column] = domain.value[column]
    return score


@leaf
def _turn(rows: Rows, domain: Domain, path: _Path, weight: FloatArray, dead: int, most: int) -> int:
    """Turn the last decisions around until rows allow it; return an outcome, or `GOING_ON`."""
    state, objective = path.state, len(rows.low) - 1
    while dead >= 0:
        weight[dead] += 1.0
        state[N_DEAD] += 1
        if state[LEVEL] == 0:
            return EXHAUSTED
        if state[N_DEAD] > most:
            return STOPPED
        state[LEVEL] -= 1
        column = path.column[state[LEVEL]]
        other = 1 - domain.value[column]
        undo(rows, domain, path.mark[state[LEVEL]])
        state[PLACE] = path.place[state[LEVEL]]
        enqueue(rows, domain, objective)  # it may have been raised since
        fix(rows, domain, column, other)
        dead = propagate(rows, domain)
    return GOING_ON


@kernel
def complete(
    rows: Rows,
    domain: Domain,
    order: IntArray,
    preferred: ByteArray,
    weight: FloatArray,
    by_need: bool,
    most: int,
    gain: float,
    best: ByteArray,
) -> tuple[int, float]:
    """Search from a domain; write the best values of all columns.

    Parameters
    ----------
    rows, domain
        The rows and the columns that are fixed; the domain is left undefined.
    order, preferred
        Columns, the first to fix first, and their preferred values.
    weight
        For each row how much it counts, to be raised by its dead ends.
    by_need
        Whether rows that lack something come first.
    most
        Maximum number of dead ends; an assignment counts as one.
    gain
        By how much the next assignment must improve.
    best
        Output: the values of the best assignment.

    Returns
    -------
    tuple
        `STOPPED` or `EXHAUSTED`, and the score of the best assignment, -inf if there is none.
    """
    n, t, score = len(order), 0, -np.inf
    rank, numbers = np.empty(n, np.int64), np.empty((3, n + 1), np.int64)
    path = _Path(numbers[0], numbers[1], numbers[2], np.zeros(3, np.int64))
    state = path.state
    for i in range(n):
        rank[order[i]] = i
    dead = propagate(rows, domain)
    while True:
        t += 1
        if t % POLL_PERIOD == 0 and interrupted():
            return STOPPED, score
        while dead < 0 and state[PLACE] < n and domain.value[order[state[PLACE]]] != OPEN:
            state[PLACE] += 1
        if dead < 0 and state[PLACE] == n:
            score, dead = _keep(rows, domain, gain, best), len(rows.low) - 1
        if dead >= 0:
            outcome = _turn(rows, domain, path, weight, dead, most)
            if outcome != GOING_ON:
                return outcome, score
            dead = -1
            continue
        column = order[state[PLACE]]
        value = preferred[column]
        if by_need:
            r = _neediest(rows, domain, weight)
            if r >= 0:
                column = _first_in_row(rows, domain, r, rank)
                value = _direction(rows, r, column)
        path.mark[state[LEVEL]], path.column[state[LEVEL]] = domain.counters[0], column
        path.place[state[LEVEL]] = state[PLACE]
        state[LEVEL] += 1
        fix(rows, domain, column, value)
        dead = propagate(rows, domain)
