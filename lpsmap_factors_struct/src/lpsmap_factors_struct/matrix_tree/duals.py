"""Reduction of the scores of arcs to a range in which trees can be summed, without changing sums.

The best tree's dual variables (Edmonds 1967) belong to nested sets of words. The dual variable z of
a set is the deficit of its best entering arc, after the dual variables of the sets inside it. The
slack of an arc is its remaining deficit. A tree then scores less than the best tree by

    sum of its arcs' slacks + sum over sets of z (number of its arcs that enter the set - 1).

Every term is at least 0. Terms beyond some limit can thus be clipped to it: trees within the limit
of the best keep their distance, and all others stay beyond it, whatever the magnitudes of the
scores. Scores are compared without rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import two_sum
from lpsmap_factors_struct.matrix_tree.expansions import Expansion, exceeds, plus

UNIT = 2.0**-64
"""Scores are in multiples of 2^64, so that their sums are finite."""

UNSEEN, DONE = -1, -2


class ReducedScores(NamedTuple):
    """Scores of arcs, with a row for every word: its arcs from the root and from each word."""

    high: FloatArray
    """The reduced scores."""
    low: FloatArray
    """The rounding errors of `high`."""
    cuts: FloatArray
    """For every arc, the number of terms clipped to the limit, which `high` does not include."""
    lacks: FloatArray
    """(3, n (n + 1)) remaining scores of arcs, as expansions in multiples of `1 / UNIT`."""
    part: IntArray
    """For every word, the number of the largest set so far that contains it."""
    place: IntArray
    """For every set, its place on the current path, or `UNSEEN` or `DONE`."""


@kernel
def tree_scores_workspace(n: int) -> ReducedScores:
    """Return a workspace for `n` words."""
    size = n * (n + 1)
    part = np.empty(n, dtype=np.int64)
    return ReducedScores(
        np.empty(size), np.empty(size), np.empty(size), np.empty((3, size)), part, part.copy()
    )


@leaf
def reduce_tree_scores(
    n: int, single_root: bool, limit: float, near: ReducedScores
) -> tuple[bool, Expansion, float, float]:
    """Write the reduced scores.

    Sets of words are contracted along a path of best arcs, until it reaches the root.

    Parameters
    ----------
    n
        Number of words.
    single_root
        Whether trees must have a single root arc. Each arc from the root then has a term beyond any
        limit, as does the set that the root arc must enter.
    limit
        The limit to which terms are clipped.
    near
        The scores, in `lacks`, and the result.

    Returns
    -------
    tuple
        Whether there is a tree; the score of the best one, in the units of `lacks`; the number of
        sets whose term was clipped; and the sum of the other sets' terms.
    """
    part, place, root_set = near.part, near.place, -1
    best, cut, uncut = (0.0, 0.0, 0.0), 0.0, 0.0
    near.high[:], near.low[:], near.cuts[:], place[:] = 0.0, 0.0, 0.0, UNSEEN
    for word in range(n):
        part[word] = word
    for word in range(n):
        own, depth = part[word], 0
        while place[own] != DONE:
            first = 1 if single_root else 0
            arc = _best_into(n, own, first, n + 1, near)
            if arc < 0 and single_root and root_set < 0:
                arc = _best_into(n, own, 0, 1, near)
                root_set = own
            if arc < 0 or interrupted():
                return False, best, 0.0, 0.0
            lack = (near.lacks[0, arc], near.lacks[1, arc], near.lacks[2, arc])
            best, z = plus(best, lack), -(lack[0] + lack[1]) / UNIT
            if z > limit or own == root_set:
                z, cut = np.inf, cut + 1.0
            else:
                uncut += z
            _raise_into(n, own, lack, z, near)
            place[own], tail = depth, arc % (n + 1) - 1
            if tail < 0 or place[part[tail]] == DONE:
                _relabel(n, 0, -1, near)
                break
            own, depth = part[tail], depth + 1
            if place[own] >= 0:
                depth = place[own]
                _relabel(n, depth, own, near)
    _add_slacks(n, single_root, root_set, limit, near)
    return True, best, cut, uncut


@leaf
def _best_into(n: int, own: int, first: int, end: int, near: ReducedScores) -> int:
    """Return the best arc into a set from the columns ``first:end``; -1 if there is none."""
    found, lacks, part = -1, near.lacks, near.part
    most = (-np.inf, 0.0, 0.0)
    for word in range(n):
        if part[word] == own:
            for column in range(first, end):
                at = word * (n + 1) + column
                if lacks[0, at] >= most[0] and (column == 0 or part[column - 1] != own):
                    arc = (lacks[0, at], lacks[1, at], lacks[2, at])
                    if exceeds(arc, most):
                        found, most = at, arc
    return found


@leaf
def _raise_into(n: int, own: int, lack: Expansion, z: float, near: ReducedScores) -> None:
    """Add the deficit of the best arc into a set to all arcs into the set."""
    lacks, part, up = near.lacks, near.part, (-lack[0], -lack[1], -lack[2])
    for word in range(n):
        if part[word] == own:
            for column in range(n + 1):
                at = word * (n + 1) + column
                if lacks[0, at] > -np.inf and (column == 0 or part[column - 1] != own):
                    arc = (lacks[0, at], lacks[1, at], lacks[2, at])
                    lacks[0, at], lacks[1, at], lacks[2, at] = plus(arc, up)
                    if z == np.inf:
                        near.cuts[at] += 1.0
                    else:
                        near.high[at], lost = two_sum(near.high[at], -z)
                        near.low[at] += lost


@leaf
def _relabel(n: int, depth: int, own: int, near: ReducedScores) -> None:
    """Merge the end of the path into set `own`; or mark the path as done if `own` is negative."""
    part, place = near.part, near.place
    for word in range(n):
        if place[part[word]] >= depth:
            if own >= 0:
                part[word] = own
            else:
                place[part[word]] = DONE


@leaf
def _add_slacks(
    n: int, single_root: bool, root_set: int, limit: float, near: ReducedScores
) -> None:
    """Add the slacks of arcs to their reduced scores."""
    for at in range(n * (n + 1)):
        lack, forbidden = near.lacks[0, at] / UNIT, at % (n + 1) == 0 and single_root
        if forbidden and near.part[at // (n + 1)] == root_set:
            forbidden = False
        if near.lacks[0, at] == -np.inf:
            near.high[at], near.low[at] = -np.inf, 0.0
        elif forbidden or lack < -limit:
            near.cuts[at] += 1.0
        else:
            near.high[at], lost = two_sum(near.high[at], lack)
            near.low[at] += lost + (near.lacks[1, at] + near.lacks[2, at]) / UNIT
