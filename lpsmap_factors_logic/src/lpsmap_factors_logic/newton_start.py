"""A start near the solution, for components whose factors all bound counts.

If each factor k requires ``l_k <= sum_v s_kv mu_v <= h_k``, with ``s_kv = -1`` for a negated
variable and 1 otherwise, LP-SparseMAP is the quadratic program

    min 1/2 ||mu - eta||^2   s.t.   0 <= mu <= 1,   l <= S mu <= h.

With multipliers y of the sums, ``mu_v = clip(eta_v - (S^T y)_v, 0, 1)``. The multipliers minimise a
piecewise quadratic convex function of few pieces. A semismooth Newton method (Qi & Sun 1993) takes
about ten steps, with a line search and damping in proportion to the violation of the sums (Li, Sun
& Toh 2020 project onto doubly stochastic matrices in this way). From large scores it would take
hundreds. It therefore starts from a fraction of them, and multiplies scores and multipliers until
the scores are the given ones (a continuation, Allgower & Georg 1990): nearly integral solutions
hardly change, and their multipliers grow with the scores. The duals of core's loop follow from the
multipliers: see `write_point`.

LP-MAP is the limit of infinite scores. Where its solution is integral, large finite ones suffice.

The loop continues from this start and certifies the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import Start, interrupted, kernel, leaf
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    FloatTable,
    IntArray,
    Links,
    Part,
)
from lpsmap_dynamic import Counts, counts_of, write_point

MAX_FACTORS = 2_048
"""Largest component, in factors, whose equations take a few seconds if all variables are inside."""

MAX_ENTRIES_OF_A_LINK = 256
"""Largest number of entries of the equations per link. Beyond it, the loop itself is faster."""

MAX_NEWTON_STEPS = 64
"""Maximum number of Newton steps for scores of one magnitude."""

FIRST_MAGNITUDE, GROWTH = 10.0, 8.0
"""The first scores are the given ones divided by powers of the second number, up to the first."""

LAST_MAGNITUDE, LAST_TOLERANCE = 1e6, 1e-7
"""Scores of LP-MAP grow until the solution is integral, or beyond this magnitude. There, the second
number is the rounding of the sums."""

MAX_SCALE = 1e280
"""Smaller scores than its inverse count as zeros, for which all points of LP-MAP are optimal."""

MAX_VERTEX_VARIABLES = 2_500
"""Components of LP-MAP with more variables start from multipliers. Of smaller ones, `lpsmap-decode`
finds vertices, also where several are optimal."""

ROUGH_TOLERANCE = 1e-2
"""Violation of the sums that is accurate enough before the scores grow."""

USUAL_STEPS = 8
"""Number of Newton steps after which the bounds are tested for contradictions."""

START_TOLERANCE, SUM_TOLERANCE = 1e-10, 1e-14
"""A violation of the sums below the first is accurate enough for the faces to follow. Newton steps
continue towards the second while they help."""

MAX_HALVINGS = 12
"""Maximum number of halvings of a step in the line search."""

ARMIJO = 1e-4
"""Smallest accepted decrease of the dual function relative to its slope."""

MIN_PIVOT = 1e-13
"""Multipliers with smaller pivots do not move."""

MAX_SCALAR_STEPS = 60
"""Maximum number of Newton steps for a single multiplier."""

ONE = np.uint64(1)
"""Unsigned 1, to add to a variable's number."""


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


FactorNumbers = npt.NDArray[np.uint32]


class Multipliers(NamedTuple):
    """The multipliers of one component, and the arrays of the Newton method."""

    begin: np.uint64
    """First variable of the component."""
    end: np.uint64
    """End of its variables."""
    low: FloatArray
    """Lower bounds of the sums."""
    high: FloatArray
    """Upper bounds of the sums."""
    y: FloatArray
    off: FloatArray
    """Signed violations of the bounds of the sums."""
    trial: FloatArray
    """Multipliers at the end of a step."""
    trial_off: FloatArray
    """Violations at the end of a step."""
    step: FloatArray
    earlier: FloatArray
    """Multipliers for the scores before these."""
    matrix: FloatTable
    """The upper triangle of the step's equations."""
    x: FloatArray
    """The variables before they are clipped to [0, 1]."""


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
    vectors, matrix, x = np.zeros((6, most)), np.empty((most, most)), np.empty(longest)
    for i in range(len(components)):
        c = components[i]
        begin, end, n = first[c], first[c + 1], first[c + 1] - first[c]
        dual = Multipliers(
            np.uint64(variables[c]),
            np.uint64(variables[c + 1]),
            counts.low[begin:end],
            counts.high[begin:end],
            vectors[0, :n],
            vectors[1, :n],
            vectors[2, :n],
            vectors[3, :n],
            vectors[4, :n],
            vectors[5, :n],
            matrix[:n, :n],
            x,
        )
        if linear:
            found[i] = _find_linear(c, dual, links, counts, score)
        else:
            found[i] = _find(c, dual, links, counts, score, tolerance[c])
        if found[i]:
            n_variables = dual.end - dual.begin
            write_point(dual.begin, x[:n_variables], dual.y, links, counts.number, u, duals)


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
    largest, scale = _largest_score(dual, links, score), 1.0
    while scale * largest > FIRST_MAGNITUDE:
        scale /= GROWTH
    _begin(c, dual, links, counts, score, scale)
    first = scale
    while scale < 1.0:
        if not _minimise(dual, ROUGH_TOLERANCE, ROUGH_TOLERANCE, links, counts, score, scale):
            return False
        scale = _extrapolate(dual, scale, scale == first)
    close = max(START_TOLERANCE, tolerance)
    found: bool = _minimise(dual, SUM_TOLERANCE, close, links, counts, score, scale)
    return found


@leaf
def _find_linear(
    c: int, dual: Multipliers, links: Links, counts: Counts, score: FloatArray
) -> bool:
    """Find the multipliers of a component of LP-MAP; return whether the method succeeded."""
    largest = _largest_score(dual, links, score)
    scale = FIRST_MAGNITUDE / largest
    if not scale < MAX_SCALE:
        return False
    _begin(c, dual, links, counts, score, scale)
    first = scale
    while True:
        if not _minimise(dual, ROUGH_TOLERANCE, ROUGH_TOLERANCE, links, counts, score, scale):
            return False
        if scale * largest >= LAST_MAGNITUDE or _is_integral(dual):
            break
        scale = _extrapolate(dual, scale, scale == first)
    tolerances = SUM_TOLERANCE, LAST_TOLERANCE
    found: bool = _minimise(dual, *tolerances, links, counts, score, scale)
    # the duals of LP-MAP are those of an integral solution by the scale, and else their slope
    integral, change = _is_integral(dual), scale - scale / GROWTH
    for k in range(len(dual.y)):
        dual.y[k] = dual.y[k] / scale if integral else (dual.y[k] - dual.earlier[k]) / change
    return found


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
def _largest_score(dual: Multipliers, links: Links, score: FloatArray) -> float:
    """Return the largest finite magnitude of a component's scores."""
    largest = 0.0
    for v in range(dual.begin, dual.end):
        x = abs(score[v]) * links.root_degree[v]
        largest = max(largest, x if x < np.inf else 0.0)
    return largest


@leaf
def _begin(
    c: int, dual: Multipliers, links: Links, counts: Counts, score: FloatArray, scale: float
) -> None:
    """Write the multipliers that bring one sum after the other within its bounds."""
    for v in range(dual.begin, dual.end):
        dual.x[v - dual.begin] = scale * score[v] * links.root_degree[v]
    for k in range(len(dual.y) - 1, -1, -1):
        i = counts.first[c] + k
        mine = slice(counts.begin[i], counts.end[i])
        dual.y[k] = _single(dual, k, counts.variable[mine], counts.negated[mine])


@leaf
def _minimise(
    dual: Multipliers,
    enough: float,
    close: float,
    links: Links,
    counts: Counts,
    score: FloatArray,
    scale: float,
) -> bool:
    """Move the multipliers to the minimum for scaled scores; return whether it is `close`.

    Violations of the sums are `close` below a tolerance, and decrease further while steps help, but
    not below `enough`.
    """
    value = _dual_function(dual, dual.y, dual.off, links, counts.number, score, scale)
    before = np.inf
    for n in range(MAX_NEWTON_STEPS):
        worst = _largest(dual.off)
        if worst <= enough or close >= worst > 0.5 * before:
            break
        before = worst
        _find_step(dual, min(worst, 1.0), links, counts)
        if interrupted() or (n >= USUAL_STEPS and _shows_contradiction(dual, links, counts)):
            return False
        value = _search(dual, value, links, counts.number, score, scale)
    return _largest(dual.off) <= close


@leaf
def _largest(off: FloatArray) -> float:
    """Return the largest magnitude of some numbers; infinity if one is not a number."""
    worst = 0.0
    for x in off:
        if not abs(x) <= worst:
            worst = abs(x) if x == x else np.inf
    return worst


@leaf
def _single(dual: Multipliers, k: int, variable: IntArray, negated: BoolArray) -> float:
    """Return the multiplier that brings one sum within its bounds; update the variables.

    This is Newton's method on the decreasing sum, safeguarded by the bracket found so far.
    """
    low, high, y, begin = -np.inf, np.inf, 0.0, np.int64(dual.begin)
    bound = np.nan
    for _ in range(MAX_SCALAR_STEPS):
        total, free = 0.0, 0
        for i in range(len(variable)):
            x = dual.x[variable[i] - begin]
            z = min(1.0, max(0.0, x + y if negated[i] else x - y))
            free += 0.0 < z < 1.0
            total += -z if negated[i] else z
        if bound != bound:
            if dual.low[k] <= total <= dual.high[k]:
                return 0.0
            bound = dual.low[k] if total < dual.low[k] else dual.high[k]
        off = total - bound
        if abs(off) <= SUM_TOLERANCE:
            break
        if off > 0.0:
            low = y
        else:
            high = y
        trial = y + off / free if free > 0 else np.nan
        if not low < trial < high:
            if low == -np.inf:
                trial = high - 1.0
            elif high == np.inf:
                trial = low + 1.0
            else:
                trial = 0.5 * (low + high)
        if trial == y:
            break
        y = trial
    for i in range(len(variable)):
        dual.x[variable[i] - begin] += y if negated[i] else -y
    return y


@leaf
def _dual_function(
    dual: Multipliers,
    y: FloatArray,
    off: FloatArray,
    links: Links,
    number: FactorNumbers,
    score: FloatArray,
    scale: float,
) -> float:
    """Write the variables and the violations of the sums; return the dual function."""
    # x = eta - S^T y, mu = clip(x, 0, 1), and the conjugate of 1/2 ||mu - eta||^2 on [0, 1]
    value = 0.0
    off[:] = 0.0
    for v in range(dual.begin, dual.end):
        lo, hi, pull = links.offsets[v], links.offsets[v + ONE], 0.0
        for e in range(lo, hi):
            pull += -y[number[e]] if links.negated[e] else y[number[e]]
        eta = scale * score[v] * links.root_degree[v]
        x = dual.x[v - dual.begin] = eta - pull
        z = min(1.0, max(0.0, x))
        if z > 0.0:
            value += z * ((x if eta < np.inf else -pull) - 0.5 * z)
            for e in range(lo, hi):
                off[number[e]] += -z if links.negated[e] else z
    # the support function of [l, h] at y, and S mu minus its maximiser
    for k in range(len(y)):
        total, low, high = off[k], dual.low[k], dual.high[k]
        if y[k] != 0.0:
            value += y[k] * (high if y[k] > 0.0 else low)
        if y[k] > 0.0 or (y[k] == 0.0 and total > high):
            off[k] = total - high
        else:
            off[k] = total - low if y[k] < 0.0 or total < low else 0.0
    return value


@leaf
def _find_step(dual: Multipliers, damping: float, links: Links, counts: Counts) -> None:
    """Write the damped Newton step; multipliers of inactive bounds do not move."""
    matrix, step, number = dual.matrix, dual.step, counts.number
    for k in range(len(step)):
        matrix[k, k:] = 0.0
        step[k] = dual.off[k]
    # (S D S^T + damping I) step = off, with D = 1 for the variables inside (0, 1)
    for v in range(dual.begin, dual.end):
        if 0.0 < dual.x[v - dual.begin] < 1.0:
            for e in range(links.offsets[v], links.offsets[v + ONE]):
                for other in range(links.offsets[v], e + ONE):
                    i, j = number[e], number[other]
                    same = links.negated[e] == links.negated[other]
                    matrix[min(i, j), max(i, j)] += 1.0 if same else -1.0
    for k in range(len(step)):
        if dual.low[k] == dual.high[k] or dual.y[k] != 0.0 or dual.off[k] != 0.0:
            matrix[k, k] += damping
            continue
        matrix[k, k:] = 0.0
        matrix[:k, k] = 0.0
        matrix[k, k] = 1.0
    _solve(matrix, step)


@leaf
def _solve(matrix: FloatTable, b: FloatArray) -> None:
    """Solve equations with a positive definite matrix, given by its upper triangle, in place."""
    n = len(b)
    for j in range(n):
        row = matrix[j]
        if not row[j] > MIN_PIVOT:
            row[j] = np.inf
        if interrupted():
            break
        for i in range(j + 1, n):
            if row[i] != 0.0:
                factor, target = row[i] / row[j], matrix[i]
                for k in range(i, n):
                    target[k] -= factor * row[k]
                b[i] -= factor * b[j]
    for j in range(n - 1, -1, -1):
        row, total = matrix[j], b[j]
        for i in range(j + 1, n):
            total -= row[i] * b[i]
        b[j] = total / row[j]


@leaf
def _shows_contradiction(dual: Multipliers, links: Links, counts: Counts) -> bool:
    """Return whether the dual function decreases without bound along the step (Farkas' lemma)."""
    step, value = dual.step, 0.0
    for k in range(len(step)):
        if step[k] != 0.0:
            value += step[k] * (dual.high[k] if step[k] > 0.0 else dual.low[k])
    for v in range(dual.begin, dual.end):
        pull = 0.0
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            own = step[counts.number[e]]
            pull += -own if links.negated[e] else own
        value += max(0.0, -pull)
    return value < 0.0


@leaf
def _search(
    dual: Multipliers,
    value: float,
    links: Links,
    number: FactorNumbers,
    score: FloatArray,
    scale: float,
) -> float:
    """Backtrack along the step until the dual function decreases; return its value there.

    Multipliers of sums whose bounds differ keep their signs.
    """
    y, off, trial, length, found = dual.y, dual.off, dual.trial, 1.0, value
    for _ in range(MAX_HALVINGS):
        slope = 0.0
        for k in range(len(y)):
            trial[k] = y[k] + length * dual.step[k]
            if dual.low[k] < dual.high[k]:
                upper = y[k] > 0.0 or (y[k] == 0.0 and off[k] > 0.0)
                trial[k] = max(0.0, trial[k]) if upper else min(0.0, trial[k])
            slope -= off[k] * (trial[k] - y[k])
        found = _dual_function(dual, trial, dual.trial_off, links, number, score, scale)
        if found <= value + ARMIJO * slope + SUM_TOLERANCE * abs(value):
            break
        length *= 0.5
    for k in range(len(y)):
        y[k], off[k] = trial[k], dual.trial_off[k]
    return found
