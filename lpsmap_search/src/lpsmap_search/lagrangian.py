"""Bounds of the likelihood over boxes of parameters by a Lagrangian relaxation.

The optimal parameters for given structures are the shares of their counts, ``f_m = p_m F_c``. With
a multiplier h_m for each of these equations, the likelihood of all structures whose shares lie in a
box is at most

    U(h) = max_y <h + kappa, f(y)>,   kappa_c = max { sum_m phi(p_m) - h_m p_m : p in the box },

where phi(p) = p log p, and p ranges over the points of the box that sum to one in every block. The
first maximum is the best structure under scores h + kappa. Since phi is convex, the second maximum
is attained at a vertex: all but one of the parameters of a block are at a bound. If a block is too
large to enumerate the vertices, phi is replaced by its chord, which leaves a linear program with
one constraint. U is convex; its subgradient is ``f_m - F_c p_m``. A constraint on the counts, ``<w,
f> >= b``, has an additional multiplier x >= 0, which adds ``x (<w, f> - b)``; its subgradient is
``<w, f> - b``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_search.branching import Means, choose_branch
from lpsmap_search.constraints import CONSTRAINT_TOLERANCE
from lpsmap_search.corpus import Derivations
from lpsmap_search.shares import SUM_TOLERANCE, Totals, phi, tighten
from lpsmap_search.viterbi import Workspace, best_counts

MAX_ENUMERATED = 7
"""Maximum size of a block whose vertices are enumerated: 7 parameters have 448 candidates, 8 have
1,024."""

HALVED_AFTER = 3
"""Steps without improvement after which the aim is halved."""

STATIONARY = 1e-20
"""Squared norm of a subgradient that is zero up to rounding: the multipliers are optimal."""


class ConstraintRow(NamedTuple):
    """A constraint on the counts; zeros for no constraint."""

    weights: FloatArray
    """(M,)."""
    least: float
    """The lower bound on the weighted counts."""


class Bounds(NamedTuple):
    """Bounds of boxes, with a row for each box."""

    bound: FloatArray
    """Upper bound on the likelihood of structures with shares in the box; -inf if there are no
    shares."""
    branch: IntArray
    """The parameter to branch on; -1 if all are fixed."""
    below: FloatArray
    """The upper bound of that parameter in the lower box."""
    above: FloatArray
    """The lower bound of that parameter in the upper box."""
    counts: FloatArray
    """The counts of the best structures found that satisfy the constraint."""
    value: FloatArray
    """Their likelihood; -inf if none were found."""


class _Vertices(NamedTuple):
    """The concatenated vertices of the blocks of a box."""

    first: IntArray
    """(C + 1,) offsets of the vertices of each block; a large block has none."""
    p: FloatArray
    """Their coordinates, in the order of the block."""
    value: FloatArray
    """The sum of phi over them."""


@leaf
def _enumerate(first: IntArray, low: FloatArray, high: FloatArray, vertices: _Vertices) -> None:
    """Enumerate the vertices of every small block."""
    at = 0
    for c in range(len(first) - 1):
        vertices.first[c] = at
        begin, size = first[c], first[c + 1] - first[c]
        if size > MAX_ENUMERATED:
            continue
        for free in range(size):
            for sides in range(1 << size):
                if sides & (1 << free):
                    continue
                rest, value = 1.0, 0.0
                for j in range(size):
                    if j != free:
                        x = high[begin + j] if sides & (1 << j) else low[begin + j]
                        vertices.p[at, j] = x
                        rest -= x
                        value += phi(x)
                if low[begin + free] - SUM_TOLERANCE <= rest <= high[begin + free] + SUM_TOLERANCE:
                    vertices.p[at, free] = rest
                    vertices.value[at] = value + phi(rest)
                    at += 1
    vertices.first[len(first) - 1] = at


@leaf
def _best_vertex(
    c: int, first: IntArray, h: FloatArray, vertices: _Vertices, p: FloatArray
) -> float:
    """Write the best vertex of a block, and return its value."""
    begin, size = first[c], first[c + 1] - first[c]
    most, best = -np.inf, vertices.first[c]
    for v in range(vertices.first[c], vertices.first[c + 1]):
        value = vertices.value[v]
        for j in range(size):
            value -= h[begin + j] * vertices.p[v, j]
        if value > most:
            most, best = value, v
    for j in range(size):
        p[begin + j] = vertices.p[best, j]
    return most


@leaf
def _best_on_chords(
    c: int, first: IntArray, h: FloatArray, low: FloatArray, high: FloatArray, p: FloatArray
) -> float:
    """Write the best point of a block under the chords of phi, and return its value.

    The mass above the lower bounds goes to the parameters with the greatest slopes.
    """
    left, value = 1.0, 0.0
    for m in range(first[c], first[c + 1]):
        p[m] = low[m]
        left -= low[m]
        value += phi(low[m]) - h[m] * low[m]
    while left > 0.0:
        most, best = -np.inf, -1
        for m in range(first[c], first[c + 1]):
            if p[m] == low[m] and high[m] > low[m]:
                slope = (phi(high[m]) - phi(low[m])) / (high[m] - low[m]) - h[m]
                if slope > most:
                    most, best = slope, m
        if best < 0:
            break
        step = min(left, high[best] - low[best])
        p[best] += step
        value += most * step
        left -= step
    return value


@kernel
def bound_boxes(
    derivations: Derivations,
    first: IntArray,
    totals: Totals,
    constraint: ConstraintRow,
    boxes: FloatArray,
    multipliers: FloatArray,
    threshold: float,
    aim: float,
    n_steps: int,
    workspace: Workspace,
    results: Bounds,
) -> None:
    """Bound the likelihood over boxes by steps of Polyak (1969) on their multipliers.

    Parameters
    ----------
    derivations
        The corpus.
    first
        Where the blocks of parameters begin.
    totals
        Ranges of the counts of blocks.
    constraint
        The constraint.
    boxes
        (B, 2 M) lower and upper bounds of each box; they are tightened in place.
    multipliers
        (B, M + 1) initial multipliers, that of the constraint last; overwritten by the best ones.
    threshold
        Boxes with bounds below this are pruned.
    aim
        The initial distance of the target below the threshold. If the target is unreachable, steps
        overshoot, and the distance is halved after some steps without improvement.
    n_steps
        Maximum number of steps for a box.
    workspace
        Workspace for passes over the corpus.
    results
        The outputs.
    """
    n, n_blocks = boxes.shape[1] // 2, len(first) - 1
    vertices = _Vertices(
        np.empty(n_blocks + 1, dtype=np.int64),
        np.empty((_most_vertices(first), MAX_ENUMERATED)),
        np.empty(_most_vertices(first)),
    )
    h, p, f, scores = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    shortfall = CONSTRAINT_TOLERANCE * max(1.0, constraint.least)
    means = Means(np.empty(n_blocks), np.empty(n), np.empty(n))
    for b in range(len(boxes)):
        low, high = boxes[b, :n], boxes[b, n:]
        results.value[b] = -np.inf
        if not tighten(first, totals, low, high):
            results.bound[b] = -np.inf
            continue
        _enumerate(first, low, high, vertices)
        h[:], x = multipliers[b, :n], max(multipliers[b, n], 0.0)
        means.counts[:], means.p[:], means.value[:] = 0.0, 0.0, 0.0
        least, distance, n_worse = np.inf, 0.0, 0
        for _ in range(n_steps):
            _relax(first, h, low, high, vertices, p, scores)
            scores += x * constraint.weights
            bound = best_counts(derivations, scores, workspace, f) - x * constraint.least
            excess, value = _inner(constraint.weights, f) - constraint.least, _likelihood(first, f)
            if value > results.value[b] and excess >= -shortfall:
                results.value[b] = value
                results.counts[b] = f
            if least == np.inf:
                distance = bound - threshold + aim
            if bound < least:
                least, n_worse = bound, 0
                multipliers[b, :n], multipliers[b, n] = h, x
            else:
                n_worse += 1
                if n_worse == HALVED_AFTER:
                    distance, n_worse = 0.5 * distance, 0
            length = _subtract_shares(first, p, f, means)
            length += excess * excess if x > 0.0 or excess < 0.0 else 0.0
            if bound <= threshold or length <= STATIONARY:
                break
            rate = (bound - least + distance) / length
            for m in range(n):
                h[m] -= rate * f[m]
            x = max(x - rate * excess, 0.0)
        results.bound[b] = least
        branch = choose_branch(first, totals, low, high, means)
        results.branch[b], results.below[b], results.above[b] = branch


@leaf
def _most_vertices(first: IntArray) -> int:
    """Return the maximum number of vertices of the small blocks."""
    most = 0
    for c in range(len(first) - 1):
        size = first[c + 1] - first[c]
        if size <= MAX_ENUMERATED:
            most += size * (1 << (size - 1))
    return most


@leaf
def _relax(
    first: IntArray,
    h: FloatArray,
    low: FloatArray,
    high: FloatArray,
    vertices: _Vertices,
    p: FloatArray,
    scores: FloatArray,
) -> None:
    """Write the best points of all blocks, and the scores ``h + kappa``."""
    for c in range(len(first) - 1):
        if first[c + 1] - first[c] <= MAX_ENUMERATED:
            kappa = _best_vertex(c, first, h, vertices, p)
        else:
            kappa = _best_on_chords(c, first, h, low, high, p)
        for m in range(first[c], first[c + 1]):
            scores[m] = h[m] + kappa


@leaf
def _subtract_shares(first: IntArray, p: FloatArray, f: FloatArray, means: Means) -> float:
    """Turn counts into the subgradient, update the means, and return its squared norm."""
    length = 0.0
    for c in range(len(first) - 1):
        total = 0.0
        for m in range(first[c], first[c + 1]):
            total += f[m]
        means.counts[c] += total
        for m in range(first[c], first[c + 1]):
            means.p[m] += total * p[m]
            means.value[m] += total * phi(p[m])
            f[m] -= total * p[m]
            length += f[m] * f[m]
    return length


@leaf
def _inner(x: FloatArray, y: FloatArray) -> float:
    """Return the inner product of two vectors; ``np.dot`` in numba needs SciPy."""
    total = 0.0
    for m in range(len(x)):
        total += x[m] * y[m]
    return total


@leaf
def _likelihood(first: IntArray, f: FloatArray) -> float:
    """Return ``sum_m f_m log f_m - sum_c F_c log F_c``."""
    value = 0.0
    for c in range(len(first) - 1):
        total = 0.0
        for m in range(first[c], first[c + 1]):
            total += f[m]
            value += phi(f[m])
        value -= phi(total)
    return value
