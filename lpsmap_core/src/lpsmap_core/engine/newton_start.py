"""A Newton start of the loop, near the solution, for components whose factors all bound counts.

If each factor k requires ``l_k <= sum_v s_kv mu_v <= h_k``, with ``s_kv = -1`` for a negated
variable and 1 otherwise, LP-SparseMAP is the quadratic program

    min 1/2 ||mu - eta||^2   s.t.   0 <= mu <= 1,   l <= S mu <= h.

With multipliers y of the sums, ``mu_v = clip(eta_v - (S^T y)_v, 0, 1)``. The multipliers minimise a
piecewise quadratic convex function of few pieces. A semismooth Newton method (Qi & Sun 1993) takes
about ten steps, with a line search and damping in proportion to the violation of the sums (Li, Sun
& Toh 2020 project onto doubly stochastic matrices in this way). The duals of the loop follow: at a
solution ``lambda_l = delta_v (s y_k - mean of the same over the variable's links)``.

The loop continues from this start and certifies the result. If no multipliers are found, it starts
as for other components. The start affects the time of a solve, not its result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.engine.problem import ONE, LoopProblem, problem_at
from lpsmap_core.layout.arrangement import Links
from lpsmap_core.layout.counts import Counts
from lpsmap_jit.arrays import BoolArray, FloatArray, FloatTable, IntArray
from lpsmap_jit.compile import kernel, leaf

__all__ = ["has_newton_start", "start_from_multipliers"]

MOST_FACTORS = 256
"""Largest component, in factors: for more, the equations with all multipliers take too long."""

MOST_NEWTON_STEPS = 64
"""Limit of Newton steps. Nearly integral solutions take the most."""

USUAL_STEPS = 8
"""Number of Newton steps after which the bounds are tested for contradictions."""

START_TOLERANCE, SUM_TOLERANCE = 1e-10, 1e-14
"""A violation of the sums below the first is accurate enough for the faces to follow. Newton steps
continue towards the second while they help."""

DAMPED_RANGE = 30.0
"""The diagonal is raised in proportion to the violation of the sums. If the range of scores exceeds
this, it is raised by less, because the multipliers are then larger."""

MOST_HALVINGS = 12
"""Limit of the halvings of a step in the line search."""

ARMIJO = 1e-4
"""Smallest accepted decrease of the dual function relative to its slope."""

LEAST_PIVOT = 1e-13
"""Multipliers with smaller pivots do not move."""

MOST_SCALAR_STEPS = 60
"""Limit of the Newton steps for a single multiplier."""


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
    matrix: FloatTable
    """The upper triangle of the step's equations."""
    x: FloatArray
    """The variables before they are clipped to [0, 1]."""


@leaf
def has_newton_start(components: IntArray, problem: Any) -> bool:
    """Return whether `start_from_multipliers` serves any of some components."""
    counts, n_served = problem_at(problem).counts, 0
    for c in components:
        n_served += _is_served(c, counts)
    return n_served > 0


@leaf
def start_from_multipliers(components: IntArray, problem: Any) -> None:
    """Write the means and duals of the components whose factors bound counts.

    If multipliers are found, they replace a warm start.
    """
    _start(components, problem_at(problem))


@kernel
def _start(components: IntArray, problem: LoopProblem) -> None:
    """Start like `start_from_multipliers`."""
    counts, progress = problem.counts, problem.progress
    first, variables = counts.first, problem.spans.first_variable
    most, longest = 0, 0
    for c in components:
        if _is_served(c, counts):
            most = max(most, first[c + 1] - first[c])
            longest = max(longest, variables[c + 1] - variables[c])
    vectors, matrix, x = np.empty((5, most)), np.empty((most, most)), np.empty(longest)
    for c in components:
        if not _is_served(c, counts):
            continue
        begin, end, n = first[c], first[c + 1], first[c + 1] - first[c]
        of = Multipliers(
            np.uint64(variables[c]),
            np.uint64(variables[c + 1]),
            counts.low[begin:end],
            counts.high[begin:end],
            vectors[0, :n],
            vectors[1, :n],
            vectors[2, :n],
            vectors[3, :n],
            vectors[4, :n],
            matrix[:n, :n],
            x,
        )
        if _find(c, of, problem):
            _write_start(of.begin, of.end, of.x, of.y, problem)
            progress.warm[c], progress.stale[c] = False, True


@leaf
def _is_served(c: int, counts: Counts) -> bool:
    """Return whether a component's factors all bound counts and are few enough."""
    served: bool = counts.covered[c] and counts.first[c + 1] - counts.first[c] <= MOST_FACTORS
    return served


@leaf
def _write_start(
    begin: np.uint64, end: np.uint64, x: FloatArray, y: FloatArray, problem: LoopProblem
) -> None:
    """Write a component's means and duals, from the means `x` before clipping."""
    links, iterate, number = problem.links, problem.iterate, problem.counts.number
    for v in range(begin, end):
        lo, hi, delta, total = links.offsets[v], links.offsets[v + ONE], links.root_degree[v], 0.0
        iterate.u[v] = min(1.0, max(0.0, x[v - begin])) / delta
        for e in range(lo, hi):
            dual = y[number[e]]
            iterate.duals[e] = -dual if links.negated[e] else dual
            total += iterate.duals[e]
        mean = total / np.float64(hi - lo)
        for e in range(lo, hi):
            iterate.duals[e] = delta * (iterate.duals[e] - mean)


@leaf
def _find(c: int, of: Multipliers, problem: LoopProblem) -> bool:
    """Find the multipliers of a component; return whether the method succeeded."""
    counts, iterate, links = problem.counts, problem.iterate, problem.links
    smallest, largest = np.inf, -np.inf
    for v in range(of.begin, of.end):
        x = of.x[v - of.begin] = iterate.score[v] * links.root_degree[v]
        if abs(x) < np.inf:
            smallest, largest = min(smallest, x), max(largest, x)
    damping = min(1.0, DAMPED_RANGE / max(largest - smallest, 1.0))
    for k in range(len(of.y) - 1, -1, -1):
        i = counts.first[c] + k
        mine = slice(counts.begin[i], counts.end[i])
        of.y[k] = _single(of, k, counts.variable[mine], counts.negated[mine])
    value = _dual(of, of.y, of.off, problem)
    close, before = max(START_TOLERANCE, problem.progress.rounding[c]), np.inf
    for n in range(MOST_NEWTON_STEPS):
        worst = _largest(of.off)
        if worst <= SUM_TOLERANCE or close >= worst > 0.5 * before:
            break
        before = worst
        _find_step(of, damping * min(worst, 1.0), links, counts)
        if n >= USUAL_STEPS and _shows_contradiction(of, links, counts):
            break
        value = _search(of, value, problem)
    found: bool = _largest(of.off) <= close
    return found


@leaf
def _largest(off: FloatArray) -> float:
    """Return the largest magnitude of some numbers; infinity if one is not a number."""
    worst = 0.0
    for x in off:
        if not abs(x) <= worst:
            worst = abs(x) if x == x else np.inf
    return worst


@leaf
def _single(of: Multipliers, k: int, variable: IntArray, negated: BoolArray) -> float:
    """Return the multiplier that brings one sum within its bounds; update the variables.

    This is Newton's method on the decreasing sum, safeguarded by the bracket found so far.
    """
    low, high, y, begin = -np.inf, np.inf, 0.0, np.int64(of.begin)
    bound = np.nan
    for _ in range(MOST_SCALAR_STEPS):
        total, free = 0.0, 0
        for i in range(len(variable)):
            x = of.x[variable[i] - begin]
            z = min(1.0, max(0.0, x + y if negated[i] else x - y))
            free += 0.0 < z < 1.0
            total += -z if negated[i] else z
        if bound != bound:
            if of.low[k] <= total <= of.high[k]:
                return 0.0
            bound = of.low[k] if total < of.low[k] else of.high[k]
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
        of.x[variable[i] - begin] += y if negated[i] else -y
    return y


@leaf
def _dual(of: Multipliers, y: FloatArray, off: FloatArray, problem: LoopProblem) -> float:
    """Write the variables and the violations of the sums; return the dual function."""
    links, score, number = problem.links, problem.iterate.score, problem.counts.number
    value = 0.0
    off[:] = 0.0
    for v in range(of.begin, of.end):
        lo, hi, pull = links.offsets[v], links.offsets[v + ONE], 0.0
        for e in range(lo, hi):
            pull += -y[number[e]] if links.negated[e] else y[number[e]]
        eta = score[v] * links.root_degree[v]
        x = of.x[v - of.begin] = eta - pull
        z = min(1.0, max(0.0, x))
        if z > 0.0:
            value += z * ((x if eta < np.inf else -pull) - 0.5 * z)
            for e in range(lo, hi):
                off[number[e]] += -z if links.negated[e] else z
    for k in range(len(y)):
        total, low, high = off[k], of.low[k], of.high[k]
        if y[k] != 0.0:
            value += y[k] * (high if y[k] > 0.0 else low)
        if y[k] > 0.0 or (y[k] == 0.0 and total > high):
            off[k] = total - high
        else:
            off[k] = total - low if y[k] < 0.0 or total < low else 0.0
    return value


@leaf
def _find_step(of: Multipliers, damping: float, links: Links, counts: Counts) -> None:
    """Write the damped Newton step; multipliers of inactive bounds do not move."""
    matrix, step, number = of.matrix, of.step, counts.number
    for k in range(len(step)):
        matrix[k, k:] = 0.0
        step[k] = of.off[k]
    for v in range(of.begin, of.end):
        if 0.0 < of.x[v - of.begin] < 1.0:
            for e in range(links.offsets[v], links.offsets[v + ONE]):
                for other in range(links.offsets[v], e + ONE):
                    i, j = number[e], number[other]
                    same = links.negated[e] == links.negated[other]
                    matrix[min(i, j), max(i, j)] += 1.0 if same else -1.0
    for k in range(len(step)):
        if of.low[k] == of.high[k] or of.y[k] != 0.0 or of.off[k] != 0.0:
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
        if not row[j] > LEAST_PIVOT:
            row[j] = np.inf
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
def _shows_contradiction(of: Multipliers, links: Links, counts: Counts) -> bool:
    """Return whether the dual function decreases without bound along the step (Farkas' lemma)."""
    step, value = of.step, 0.0
    for k in range(len(step)):
        if step[k] != 0.0:
            value += step[k] * (of.high[k] if step[k] > 0.0 else of.low[k])
    for v in range(of.begin, of.end):
        pull = 0.0
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            own = step[counts.number[e]]
            pull += -own if links.negated[e] else own
        value += max(0.0, -pull)
    return value < 0.0


@leaf
def _search(of: Multipliers, value: float, problem: LoopProblem) -> float:
    """Backtrack along the step until the dual function decreases; return its value there.

    Multipliers of sums whose bounds differ keep their signs.
    """
    y, off, trial, length, found = of.y, of.off, of.trial, 1.0, value
    for _ in range(MOST_HALVINGS):
        slope = 0.0
        for k in range(len(y)):
            trial[k] = y[k] + length * of.step[k]
            if of.low[k] < of.high[k]:
                upper = y[k] > 0.0 or (y[k] == 0.0 and off[k] > 0.0)
                trial[k] = max(0.0, trial[k]) if upper else min(0.0, trial[k])
            slope -= off[k] * (trial[k] - y[k])
        found = _dual(of, trial, of.trial_off, problem)
        if found <= value + ARMIJO * slope + SUM_TOLERANCE * abs(value):
            break
        length *= 0.5
    for k in range(len(y)):
        y[k], off[k] = trial[k], of.trial_off[k]
    return found
