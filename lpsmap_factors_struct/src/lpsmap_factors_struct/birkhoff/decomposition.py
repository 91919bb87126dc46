"""Decomposition of marginals into matchings (Birkhoff 1946)."""

from __future__ import annotations

import numpy as np

from lpsmap_core import kernel
from lpsmap_core.api import FloatArray, IntArray, Vertices
from lpsmap_factors_struct.assignment import AssignmentWorkspace, assign, assignment_workspace

REST = 1e-12
"""Weight that may be left when no further matching is found, as rounding."""

MAX_LOST = 1e-7
"""Largest weight that rounding loses."""

TIGHT = 1e-11
"""A line is tight if its sum is within this of the remaining weight."""


def read_matchings(f: int, m: int, n: int, full: bool, marginals: FloatArray) -> Vertices:
    """Return matchings whose mixture has some marginals.

    Parameters
    ----------
    f
        Number of the factor.
    m, n
        Numbers of rows and columns.
    full
        Whether the lines of the side that is not longer are all matched.
    marginals
        (m, n) marginals.
    """
    rest = np.ascontiguousarray(marginals if m <= n else marginals.T)
    work = assignment_workspace(min(m, n), max(m, n), m * n)
    partner, weight = _decompose(rest.copy(), full, work)
    total = weight.sum()
    if total < 1.0 - MAX_LOST:
        raise RuntimeError(f"structures: found matchings of a total weight of {total}, not 1.")
    matched, short = partner >= 0, np.arange(min(m, n))
    slots = short * n + partner if m <= n else partner * n + short
    sizes = matched.sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    owner, entry = np.full(len(weight), f), slots[matched]
    return Vertices(owner, weight / total, offsets, entry, np.ones(len(entry)))


@kernel
def _decompose(
    rest: FloatArray, full: bool, work: AssignmentWorkspace
) -> tuple[IntArray, FloatArray]:
    """Subtract matchings until nothing is left; return the partners of short lines, and weights.

    It also ends when a line that must be matched has no entry left, except for rounding.
    """
    short, long = rest.shape
    most = short * long + short + long + 1
    partner, weight = np.full((most, short), -1), np.empty(most)
    of_short, of_long, left, n = np.empty(short), np.empty(long), 1.0, 0
    while left > REST and n < most:
        of_short[:], of_long[:] = 0.0, 0.0
        for i in range(short):
            for j in range(long):
                of_short[i] += rest[i, j]
                of_long[j] += rest[i, j]
        for i in range(short):
            of_short[i] = left if full or of_short[i] > left - TIGHT else of_short[i]
        for j in range(long):
            equal = full and short == long
            of_long[j] = left if equal or of_long[j] > left - TIGHT else of_long[j]
        _cover_tight(rest, of_short, of_long, left, work)
        assign(short, long, work)
        step, covered = left, np.zeros(long, dtype=np.bool_)
        for i in range(short):
            j = work.partner[i]
            if rest[i, j] > 0.0:
                partner[n, i], covered[j] = j, True
                step = min(step, rest[i, j])
            else:
                step = min(step, left - of_short[i])
        for j in range(long):
            if not covered[j]:
                step = min(step, left - of_long[j])
        if step <= 0.0:
            break
        for i in range(short):
            j = partner[n, i]
            if j >= 0:
                rest[i, j] = rest[i, j] - step if rest[i, j] > step + REST else 0.0
        weight[n] = step
        left -= step
        n += 1
    return partner[:n], weight[:n]


@kernel
def _cover_tight(
    rest: FloatArray,
    of_short: FloatArray,
    of_long: FloatArray,
    left: float,
    work: AssignmentWorkspace,
) -> None:
    """Write costs for which the best assignment covers all tight lines by entries that are left.

    A matching of the face covers all lines whose sums are the whole remaining weight. Among these,
    wide entries are cheaper.
    """
    short, long = rest.shape
    for i in range(short):
        least = np.inf
        for j in range(long):
            cost = 4.0 * (short + long)
            if rest[i, j] > 0.0:
                cost -= rest[i, j]
                cost -= short + 1.0 if of_short[i] == left else 0.0
                cost -= short + 1.0 if of_long[j] == left else 0.0
            work.cost[i * long + j] = cost
            least = min(least, cost)
        for j in range(long):
            work.cost[i * long + j] -= least
