"""Where the loop starts if all factors bound counts: nearly where it ends.

Where each factor k asks for ``l_k <= sum_v s_kv mu_v <= h_k``, with ``s_kv = -1`` for a negated
variable, else 1, LP-SparseMAP is the quadratic program

    min 1/2 ||mu - eta||^2   s.t.   0 <= mu <= 1,   l <= S mu <= h.

With multipliers y of the sums, ``mu_v = clip(eta_v - (S^T y)_v, 0, 1)``. They minimise a convex
function that is quadratic in few pieces: a semismooth Newton method (Qi & Sun 1993) takes about
ten steps, each damped as far as the sums are off, with a line search (Li, Sun & Toh 2020 project
onto doubly stochastic matrices so). The duals of the loop follow from them: at a solution
``lambda_l = delta_v (s y_k - mean of the same over the variable's links)``.

The loop goes on from there, and certifies what it finds; where no multipliers are found, it starts
as elsewhere. They count for time alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.engine.problem import ONE, LoopProblem
from lpsmap_core.engine.selection import Selection
from lpsmap_core.layout.arrangement import Links
from lpsmap_core.layout.counts import Counts
from lpsmap_jit.arrays import BoolArray, FloatArray, FloatTable, IntArray
from lpsmap_jit.compile import kernel, leaf

__all__ = ["seeks_multipliers", "start_from_multipliers"]

MOST_FACTORS = 256
"""Components of more factors are left out: equations with all multipliers would take too long."""

MOST_STEPS = 64
"""Newton steps, after which what was found is given up. Nearly whole solutions take the most."""

USUAL_STEPS = 8
"""Newton steps, after which one looks whether the bounds contradict each other."""

CLOSE, ROUNDING = 1e-10, 1e-14
"""Sums off by less than the first are a start from which the faces follow; they are brought nearer,
as far as the second, while steps help."""

DAMPED_RANGE = 30.0
"""The diagonal is raised by how far sums are off; by less where the range of scores is larger than
this, for then multipliers have farther to go."""

MOST_HALVINGS = 12
"""Halvings of a step in the line search."""

ARMIJO = 1e-4
"""Least decrease of the dual function, relative to what its slope promises."""

LEAST_PIVOT = 1e-13
"""Multipliers whose pivots are smaller than this do not move."""

MOST_PASSES = 60
"""Steps of Newton's method for a single multiplier."""


class Multipliers(NamedTuple):
    """The multipliers of one component, and what finding them works on."""

    begin: np.uint64
    end: np.uint64
    """The component's variables lie between these."""
    low: FloatArray
    high: FloatArray
    """Bounds of the sums."""
    y: FloatArray
    off: FloatArray
    """How far sums are from bounds that they have to keep."""
    trial: FloatArray
    trial_off: FloatArray
    """The same at the end of a step."""
    step: FloatArray
    matrix: FloatTable
    """The upper triangle of the step's equations."""
    x: FloatArray
    """The variables before they are clipped to [0, 1]."""


@leaf
def seeks_multipliers(selection: Selection, counts: Counts) -> bool:
    """Return whether `start_from_multipliers` serves a component of a selection."""
    n_served = 0
    for c in selection.components:
        n_served += _is_served(c, counts)
    return n_served > 0


@kernel
def start_from_multipliers(selection: Selection, problem: LoopProblem) -> None:
    """Write the means and duals of those components of a selection that bound counts.

    An earlier solution to start from is left for them, unless they are not found.
    """
    counts, progress = problem.counts, problem.progress
    first, variables = counts.first, problem.blocks.first_variable
    most, longest = 0, 0
    for c in selection.components:
        if _is_served(c, counts):
            most = max(most, first[c + 1] - first[c])
            longest = max(longest, variables[c + 1] - variables[c])
    vectors, matrix, x = np.empty((5, most)), np.empty((most, most)), np.empty(longest)
    for c in selection.components:
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
    """Return whether a component's factors bound counts, and are few enough."""
    served: bool = counts.covered[c] and counts.first[c + 1] - counts.first[c] <= MOST_FACTORS
    return served


@leaf
def _write_start(
    begin: np.uint64, end: np.uint64, x: FloatArray, y: FloatArray, problem: LoopProblem
) -> None:
    """Write a component's means and duals, from the numbers that the means are before clipping."""
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
    """Find the multipliers of a component; return whether that succeeded."""
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
    close, before = max(CLOSE, problem.progress.rounding[c]), np.inf
    for n in range(MOST_STEPS):
        worst = _largest(of.off)
        if worst <= ROUNDING or close >= worst > 0.5 * before:
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
    """Return the multiplier that brings one sum to its bounds; the variables follow.

    Newton's method on the falling sum, between the bounds that it has found.
    """
    low, high, y, begin = -np.inf, np.inf, 0.0, np.int64(of.begin)
    bound = np.nan
    for _ in range(MOST_PASSES):
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
        if abs(off) <= ROUNDING:
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
    """Write the variables, and how far sums are off; return the dual function."""
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
    """Write the damped Newton step; multipliers that bound nothing stay."""
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
    """Return whether the dual function falls for ever along the step (Farkas' lemma)."""
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
    """Go along the step as far as the dual function falls; return its value there.

    Multipliers of bounds that differ keep their signs.
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
        if found <= value + ARMIJO * slope + ROUNDING * abs(value):
            break
        length *= 0.5
    for k in range(len(y)):
        y[k], off[k] = trial[k], of.trial_off[k]
    return found
