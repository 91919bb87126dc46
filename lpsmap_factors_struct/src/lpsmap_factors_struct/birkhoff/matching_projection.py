"""Projection onto the polytope of matchings by a Newton method on the multipliers of its lines.

The matchings' convex hull is described by the sums of rows and columns (Birkhoff 1946). The local
problem, in marginals ``x = delta z`` with ``y = delta a`` and ``q = delta^2``,

    minimise sum_e (x_e - y_e)^2 / (2 q_e)   s.t.  x >= 0, the lines sum to at most or exactly 1,

has the solution ``x_ij = max(0, y_ij - q_ij (u_i + v_j))`` for the multipliers u of its rows and v
of its columns. They minimise a convex function that is piecewise quadratic. A semismooth Newton
method with a line search takes about ten steps (Li, Sun & Toh 2020), far fewer than a solution with
many fractional entries has structures.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, leaf
from lpsmap_core.api import FloatArray
from lpsmap_factors_struct.birkhoff.equations import solve_equations
from lpsmap_factors_struct.birkhoff.lines import Lines, Sides

MAX_STEPS = 60
"""Maximum number of Newton steps."""

BEST_EXCESS, GOOD_EXCESS, MAX_EXCESS = 1e-15, 1e-12, 1e-11
"""Newton steps end at the first excess of a line, and at the second if they no longer help; the
third is accepted after the last step."""

EXCESS_ROUNDING, MAX_EXCESS_ROUNDING = 4e-16, 1e-9
"""Rounding of a sum, which the second and third are not below, for each entry of a line relative to
the multipliers, and its limit."""

DAMPED_RANGE = 30.0
"""The diagonal is raised in proportion to the excess, by less if the multipliers are larger."""

MAX_HALVINGS, ARMIJO = 12, 1e-4
"""Maximum number of halvings of a step, and the smallest decrease accepted, relative to the
slope."""

VALUE_ROUNDING = 1e-14
"""Relative rounding of the dual function, by which a step may raise it."""

ROUNDING = 4e-16
"""Marginals below this multiple of the numbers from which they are computed are zero."""

FACE_STEPS = 2
"""Number of corrections of a product on a face; the second finds the last digits."""


@leaf
def project(sides: Sides, warm: bool, lines: Lines) -> bool:
    """Write the marginals of a matching; return whether they are accurate.

    The multipliers start from those of the workspace if they are `warm`.
    """
    _centre(sides, lines)
    if not warm:
        _start(sides, lines)
    value, before = _evaluate(sides, lines.multiplier, lines.excess, lines), np.inf
    for _ in range(MAX_STEPS):
        worst, size = _largest(sides, lines.excess), 1.0 + _largest(sides, lines.multiplier)
        good = max(GOOD_EXCESS, _excess_rounding(sides, lines))
        if worst <= BEST_EXCESS or good >= worst > 0.5 * before or interrupted():
            break
        before = worst
        _find_step(sides, min(1.0, DAMPED_RANGE / size) * min(worst, 1.0), lines)
        value = _search(sides, value, lines)
    _clear_rounding(sides, lines)
    most = max(MAX_EXCESS, _excess_rounding(sides, lines))
    accurate: bool = _largest(sides, lines.excess) <= most
    return accurate


@leaf
def _excess_rounding(sides: Sides, lines: Lines) -> float:
    """Return the rounding of sums: the multipliers are large if all scores are."""
    size = _largest(sides, lines.multiplier)
    found: float = min(EXCESS_ROUNDING * sides.n_long * size, MAX_EXCESS_ROUNDING)
    return found


@leaf
def _centre(sides: Sides, lines: Lines) -> None:
    """Reduce the scores of lines that must be matched, so that the largest of a line are 0.

    The solution is the same, and the multipliers are no larger than the scores differ, so that
    their rounding is small.
    """
    n_short, n = sides.n_short, sides.n_long * sides.n_short
    if sides.equal_short:
        for j in range(n_short):
            _centre_line(lines, j, n, n_short)
    if sides.equal_long:
        for i in range(0, n, n_short):
            _centre_line(lines, i, i + n_short, 1)


@leaf
def _centre_line(lines: Lines, first: int, end: int, step: int) -> None:
    """Reduce the scores of one line."""
    y, q, level = lines.y, lines.q, -np.inf
    for e in range(first, end, step):
        level = max(level, y[e] / q[e])
    if level > -np.inf:
        for e in range(first, end, step):
            y[e] -= q[e] * level


@leaf
def _start(sides: Sides, lines: Lines) -> None:
    """Start from multipliers of short lines with which most have sums of about 1."""
    y, q, n_long, n_short = lines.y, lines.q, sides.n_long, sides.n_short
    for i in range(n_long):
        lines.multiplier[i] = 0.0
    for j in range(n_short):
        total, weight = -1.0, 0.0
        for e in range(j, n_long * n_short, n_short):
            if y[e] > -1.0:
                total += y[e]
                weight += q[e]
        level = total / weight if weight > 0.0 else 0.0
        lines.multiplier[n_long + j] = level if sides.equal_short else max(0.0, level)


@leaf
def _is_equal(sides: Sides, line: int) -> bool:
    """Return whether a line must be matched."""
    equal: bool = sides.equal_long if line < sides.n_long else sides.equal_short
    return equal


@leaf
def _largest(sides: Sides, numbers: FloatArray) -> float:
    """Return the largest magnitude of the lines' numbers; infinity if one is not a number."""
    worst = 0.0
    for k in range(sides.n_long + sides.n_short):
        size = abs(numbers[k])
        if not size <= worst:
            worst = size if size == size else np.inf
    return worst


@leaf
def _evaluate(sides: Sides, multiplier: FloatArray, excess: FloatArray, lines: Lines) -> float:
    """Write the marginals and excesses for some multipliers; return the dual function."""
    y, q, x, n_long, n_short = lines.y, lines.q, lines.x, sides.n_long, sides.n_short
    value = 0.0
    for k in range(n_long + n_short):
        value += multiplier[k]
        excess[k] = -1.0
    for i in range(n_long):
        row, total = i * n_short, 0.0
        for j in range(n_short):
            e = row + j
            z = y[e] - q[e] * (multiplier[i] + multiplier[n_long + j])
            x[e] = max(0.0, z)
            if z > 0.0:
                total += z
                excess[n_long + j] += z
                value += 0.5 * z * z / q[e]
        excess[i] += total
    for k in range(n_long + n_short):
        if not _is_equal(sides, k) and multiplier[k] == 0.0 and excess[k] < 0.0:
            excess[k] = 0.0
    return value


@leaf
def _find_step(sides: Sides, damping: float, lines: Lines) -> None:
    """Write the damped Newton step; multipliers of inactive bounds rest."""
    for k in range(sides.n_long + sides.n_short):
        moving = _is_equal(sides, k) or lines.multiplier[k] != 0.0 or lines.excess[k] != 0.0
        lines.moves[k] = 1.0 if moving else 0.0
        lines.step[k] = lines.excess[k]
    solve_equations(sides, damping, lines)


@leaf
def _search(sides: Sides, value: float, lines: Lines) -> float:
    """Backtrack along the step until the dual function decreases; return its value there."""
    n, length, found = sides.n_long + sides.n_short, 1.0, value
    multiplier, trial, excess = lines.multiplier, lines.trial, lines.excess
    for _ in range(MAX_HALVINGS):
        slope = 0.0
        for k in range(n):
            trial[k] = multiplier[k] + length * lines.step[k]
            if not _is_equal(sides, k):
                trial[k] = max(0.0, trial[k])
            slope -= excess[k] * (trial[k] - multiplier[k])
        found = _evaluate(sides, trial, lines.trial_excess, lines)
        if found <= value + ARMIJO * slope + VALUE_ROUNDING * (1.0 + abs(value)):
            break
        length *= 0.5
    for k in range(n):
        multiplier[k], excess[k] = trial[k], lines.trial_excess[k]
    return found


@leaf
def _clear_rounding(sides: Sides, lines: Lines) -> None:
    """Set marginals to zero that are only rounding."""
    y, q, x, multiplier = lines.y, lines.q, lines.x, lines.multiplier
    for i in range(sides.n_long):
        for j in range(sides.n_short):
            e = i * sides.n_short + j
            size = 1.0 + q[e] * (abs(multiplier[i]) + abs(multiplier[sides.n_long + j]))
            if x[e] <= ROUNDING * (size + abs(y[e])):
                x[e] = 0.0


# -------------------------------------------------------------------- the derivative


@leaf
def mark_tight_lines(sides: Sides, lines: Lines) -> None:
    """Let those lines move whose sums stay at 1 on the face, by their multipliers."""
    for k in range(sides.n_long + sides.n_short):
        tight = _is_equal(sides, k) or lines.multiplier[k] > 0.0
        lines.moves[k] = 1.0 if tight else 0.0


@leaf
def move_on_face(sides: Sides, lines: Lines) -> None:
    """Project ``lines.y`` onto the directions of the face: the support of `x`, and tight lines."""
    y, q, x, step, n_long, n_short = (
        *(lines.y, lines.q, lines.x, lines.step),
        *(sides.n_long, sides.n_short),
    )
    for e in range(n_long * n_short):
        if x[e] == 0.0:
            y[e] = 0.0
    for _ in range(FACE_STEPS):
        for k in range(n_long + n_short):
            step[k] = 0.0
        for i in range(n_long):
            for j in range(n_short):
                step[i] += y[i * n_short + j]
                step[n_long + j] += y[i * n_short + j]
        solve_equations(sides, 0.0, lines)
        for i in range(n_long):
            for j in range(n_short):
                e = i * n_short + j
                if x[e] > 0.0:
                    y[e] -= q[e] * (step[i] + step[n_long + j])
