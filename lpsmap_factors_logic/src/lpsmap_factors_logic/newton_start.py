"""A start near the solution, for components whose factors all bound counts.

The multipliers of the bounds (see `lpsmap_factors_logic.multipliers`) give the duals of core's
loop, which continues from this start and certifies the result.

From large scores the Newton method would take hundreds of steps. It therefore starts from a
fraction of them, and extrapolates the multipliers to larger scores, up to the given ones (a
continuation, Allgower & Georg 1990). Nearly integral solutions hardly change, and their multipliers
grow with the scores.

LP-MAP is the limit of infinite scores. Where its solution is integral, large finite ones suffice.
Of several optima the method finds the mean, and then one of them, by small differences of the
scores.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import Start, kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Links, Part
from lpsmap_dynamic import Counts, counts_of, write_point
from lpsmap_factors_logic.multipliers import (
    DAMPED_REACH,
    SUM_TOLERANCE,
    Multipliers,
    minimise,
    sweep,
)

MAX_FACTORS = 2_048
"""Largest component, in factors, whose equations take a few seconds if all variables are inside."""

MAX_ENTRIES_OF_A_LINK = 256
"""Largest number of entries of the equations per link. Beyond it, the loop itself is faster."""

FIRST_MAGNITUDE, GROWTH = 10.0, 8.0
"""The first scores are the given ones divided by powers of the second number, up to the first."""

LAST_MAGNITUDE, LAST_TOLERANCE = 1e6, 1e-7
"""Scores of LP-MAP grow until the solution is integral, or beyond this magnitude. There, the second
number is the rounding of the sums."""

MAX_GROWTHS = 9
"""Number of times that the scores of several optima grow until one is found."""

GOLDEN = 0.6180339887498949
"""Multiples by squares are spread evenly modulo 1, without the symmetries of a graph."""

MAX_SCALE = 1e280
"""Smaller scores than its inverse count as zeros, for which all points of LP-MAP are optimal."""

MAX_VERTEX_VARIABLES = 2_500
"""Components of LP-MAP with more variables start from multipliers. Of smaller ones, `lpsmap-decode`
finds vertices, also where several are optimal."""

ROUGH_TOLERANCE = 1e-2
"""Violation of the sums that is accurate enough before the scores grow."""

START_TOLERANCE = 1e-10
"""A violation of the sums below this is accurate enough for the faces to follow. Newton steps
continue while they help."""


class NewtonStart(Start):
    """Starts components whose factors all bound counts from their multipliers."""

    name = "newton"

    def serves(self, part: Part) -> BoolArray | None:
        """Return the components whose factors all bound counts and are few enough."""
        return part.derived(_served_components)

    def find(
        self,
        part: Part,
        components: IntArray,
        score: FloatArray,
        tolerance: FloatArray,
        u: FloatArray,
        duals: FloatArray,
    ) -> BoolArray:
        """Write the means and duals of the multipliers that were found; see `Start.find`."""
        found = np.zeros(len(components), dtype=np.bool_)
        point = score, tolerance, self.linear, u, duals, found
        _start(components, part.first_variable, part.links, counts_of(part), *point)
        return found


class LinearNewtonStart(NewtonStart):
    """The same for LP-MAP, for components that are too large for a dual simplex method."""

    name = "newton-linear"
    linear = True

    def serves(self, part: Part) -> BoolArray | None:
        """Return the large components whose factors all bound counts and are few enough."""
        served = super().serves(part)
        large = np.diff(part.first_variable) > MAX_VERTEX_VARIABLES
        return None if served is None else served & large


def _served_components(part: Part) -> BoolArray | None:
    """Compute `NewtonStart.serves`."""
    covered: BoolArray = counts_of(part).covered
    if not covered.any():
        return None
    n_factors = np.diff(counts_of(part).first)
    n_most = np.minimum(MAX_FACTORS, np.sqrt(MAX_ENTRIES_OF_A_LINK * part.sizes))
    return covered & (n_factors <= n_most)


@kernel
def _start(
    components: IntArray,
    variables: IntArray,
    links: Links,
    counts: Counts,
    score: FloatArray,
    tolerance: FloatArray,
    linear: bool,
    u: FloatArray,
    duals: FloatArray,
    found: BoolArray,
) -> None:
    """Write the starting points of components, and mark in `found` which have one."""
    first, most, longest = counts.first, 0, 0
    for c in components:
        most = max(most, first[c + 1] - first[c])
        longest = max(longest, variables[c + 1] - variables[c])
    vectors, matrix, x = np.zeros((7, most)), np.empty((most, most)), np.empty(longest)
    changed = score.copy() if linear else score
    for i in range(len(components)):
        c = components[i]
        begin, end, n = first[c], first[c + 1], first[c + 1] - first[c]
        dual = Multipliers(
            np.uint64(variables[c]),
            np.uint64(variables[c + 1]),
            _largest_score(variables[c], variables[c + 1], links, score),
            counts.low[begin:end],
            counts.high[begin:end],
            vectors[0, :n],
            vectors[1, :n],
            vectors[2, :n],
            vectors[3, :n],
            vectors[4, :n],
            vectors[5, :n],
            vectors[6, :n],
            matrix[:n, :n],
            x,
        )
        scale = 1.0
        if linear:
            scale = _find_linear(c, dual, links, counts, changed)
            found[i] = scale > 0.0
        else:
            found[i] = _find(c, dual, links, counts, score, tolerance[c])
        if found[i]:
            means, y = x[: dual.end - dual.begin], dual.linear if linear else dual.y
            write_point(dual.begin, means, y, links, counts.number, u, duals)
        if linear and found[i] and _break_ties(dual, links, counts, changed, scale):
            _write_means(dual, links, u)


@leaf
def _find(
    c: int,
    dual: Multipliers,
    links: Links,
    counts: Counts,
    score: FloatArray,
    tolerance: float,
) -> bool:
    """Find the multipliers of a component; return whether the method succeeded."""
    scale = 1.0
    while scale * dual.largest > FIRST_MAGNITUDE:
        scale /= GROWTH
    sweep(c, dual, links, counts, score, scale)
    first, rough = scale, (ROUGH_TOLERANCE, ROUGH_TOLERANCE)
    while scale < 1.0:
        if not minimise(dual, *rough, scale * dual.largest, links, counts, score, scale):
            return False
        scale = _extrapolate(dual, scale, scale == first)
    exact = SUM_TOLERANCE, max(START_TOLERANCE, tolerance)
    found: bool = minimise(dual, *exact, scale * dual.largest, links, counts, score, scale)
    return found


@leaf
def _find_linear(
    c: int, dual: Multipliers, links: Links, counts: Counts, score: FloatArray
) -> float:
    """Find the multipliers of a component of LP-MAP; return the scale, 0 if the method failed."""
    scale = FIRST_MAGNITUDE / dual.largest
    if not scale < MAX_SCALE:
        return 0.0
    sweep(c, dual, links, counts, score, scale)
    first, rough = scale, (ROUGH_TOLERANCE, ROUGH_TOLERANCE)
    while True:
        if not minimise(dual, *rough, DAMPED_REACH, links, counts, score, scale):
            return 0.0
        if scale * dual.largest >= LAST_MAGNITUDE or _is_integral(dual):
            break
        scale = _extrapolate(dual, scale, scale == first)
    exact = SUM_TOLERANCE, LAST_TOLERANCE
    if not minimise(dual, *exact, DAMPED_REACH, links, counts, score, scale):
        return 0.0
    # those of an integral solution by the scale, and else their slope
    integral, change = _is_integral(dual), scale - scale / GROWTH
    for k in range(len(dual.y)):
        y = dual.y[k]
        dual.linear[k] = y / scale if integral else (y - dual.earlier[k]) / change
    return scale


@leaf
def _break_ties(
    dual: Multipliers, links: Links, counts: Counts, score: FloatArray, scale: float
) -> bool:
    """Move the variables from the mean of several optima to one; return whether one was found.

    Small differences are added to the scores, and grow with them until they decide.
    """
    if _is_integral(dual):
        return False
    for v in range(dual.begin, dual.end):
        place = np.float64(v - dual.begin)
        difference = GOLDEN * place * place
        score[v] += (difference - np.floor(difference)) / (scale * links.root_degree[v])
    rough, reach = (ROUGH_TOLERANCE, ROUGH_TOLERANCE), 1.0
    for _ in range(MAX_GROWTHS):
        if not minimise(dual, *rough, reach, links, counts, score, scale):
            return False
        if _is_integral(dual):
            return True
        scale, reach = _extrapolate(dual, scale, False), GROWTH * reach
    return False


@leaf
def _write_means(dual: Multipliers, links: Links, u: FloatArray) -> None:
    """Write the means of a component."""
    for v in range(dual.begin, dual.end):
        u[v] = min(1.0, max(0.0, dual.x[v - dual.begin])) / links.root_degree[v]


@leaf
def _is_integral(dual: Multipliers) -> bool:
    """Return whether no variable is inside (0, 1)."""
    inside = 0
    for x in dual.x[: dual.end - dual.begin]:
        inside += 0.0 < x < 1.0
    return inside == 0


@leaf
def _extrapolate(dual: Multipliers, scale: float, first: bool) -> float:
    """Move the multipliers to where they would be for larger scores; return the new scale.

    They are affine in the scale while the same variables are inside (0, 1). Those of sums whose
    bounds differ keep their signs.
    """
    for k in range(len(dual.y)):
        y = dual.y[k]
        moved = GROWTH * y if first else y + GROWTH * (y - dual.earlier[k])
        dual.y[k] = moved if dual.low[k] == dual.high[k] or moved * y > 0.0 else 0.0
        dual.earlier[k] = y
    return scale * GROWTH


@leaf
def _largest_score(begin: int, end: int, links: Links, score: FloatArray) -> float:
    """Return the largest finite magnitude of the scores of some variables."""
    largest = 0.0
    for v in range(begin, end):
        x = abs(score[v]) * links.root_degree[v]
        largest = max(largest, x if x < np.inf else 0.0)
    return largest
