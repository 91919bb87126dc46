"""The multipliers of bounds on counts, by a semismooth Newton method.

If each factor k requires ``l_k <= sum_v s_kv mu_v <= h_k``, with ``s_kv = -1`` for a negated
variable and 1 otherwise, LP-SparseMAP is the quadratic program

    min 1/2 ||mu - eta||^2   s.t.   0 <= mu <= 1,   l <= S mu <= h.

With multipliers y of the sums, ``mu_v = clip(eta_v - (S^T y)_v, 0, 1)``. The multipliers minimise a
piecewise quadratic convex function of few pieces. A semismooth Newton method (Qi & Sun 1993) takes
about ten steps, with a line search and damping in proportion to the violation of the sums (Li, Sun
& Toh 2020 project onto doubly stochastic matrices in this way).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import interrupted, leaf
from lpsmap_core.api import BoolArray, FloatArray, FloatTable, IntArray, Links
from lpsmap_dynamic import Counts

MAX_NEWTON_STEPS = 100
"""Maximum number of Newton steps for scores of one magnitude."""

DAMPED_REACH = 20.0
"""The diagonal is raised in proportion to the violation of the sums. If multipliers may have to
move farther than this, it is raised by less."""

USUAL_STEPS = 8
"""Number of Newton steps after which the bounds are tested for contradictions."""

MAX_HALVINGS = 12
"""Maximum number of halvings of a step in the line search."""

ARMIJO = 1e-4
"""Smallest accepted decrease of the dual function relative to its slope."""

MIN_PIVOT = 1e-13
"""Multipliers with smaller pivots do not move."""

MAX_SCALAR_STEPS = 60
"""Maximum number of Newton steps for a single multiplier."""

SUM_TOLERANCE = 1e-14
"""Violation of a sum that is rounding."""

ONE = np.uint64(1)
"""Unsigned 1, to add to a variable's number."""

FactorNumbers = npt.NDArray[np.uint32]


class Multipliers(NamedTuple):
    """The multipliers of one component, and the arrays of the Newton method."""

    begin: np.uint64
    """First variable of the component."""
    end: np.uint64
    """End of its variables."""
    largest: float
    """The largest finite magnitude of its scores."""
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
    linear: FloatArray
    """Multipliers of LP-MAP."""
    matrix: FloatTable
    """The upper triangle of the step's equations."""
    x: FloatArray
    """The variables before they are clipped to [0, 1]."""


@leaf
def sweep(
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
def minimise(
    dual: Multipliers,
    enough: float,
    close: float,
    reach: float,
    links: Links,
    counts: Counts,
    score: FloatArray,
    scale: float,
) -> bool:
    """Move the multipliers, up to about `reach`, to the minimum; return whether it is `close`.

    Violations of the sums are `close` below a tolerance, and decrease further while steps help, but
    not below `enough`.
    """
    damping = DAMPED_REACH / max(reach, DAMPED_REACH)
    value = _dual_function(dual, dual.y, dual.off, links, counts.number, score, scale)
    before = np.inf
    for n in range(MAX_NEWTON_STEPS):
        worst = _largest(dual.off)
        if worst <= enough or close >= worst > 0.5 * before:
            break
        before = worst
        _find_step(dual, damping * min(worst, 1.0), links, counts)
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
