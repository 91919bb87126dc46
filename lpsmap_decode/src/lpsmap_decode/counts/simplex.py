"""The dual simplex method for linear programs whose rows are counts.

    max <eta, x>   s.t.   0 <= x <= 1,   l <= S x <= h,

where a row of S has 1 for each variable that it counts, and -1 for each that it counts negated.
LP-MAP has this form if every factor of a component only bounds the number of its variables that are
on.

All variables are bounded, so the method starts without rows: with each variable at the better of
its bounds, the vertex is optimal. In each pivot, a row or variable that violates a bound leaves the
basis at that bound, and a nonbasic one enters (Lemke 1954). Candidates whose ratio is too small
flip to their other bound, as long as that does not suffice (Fourer 1994). The method could cycle
among equal ratios, so that those of an infinitesimal perturbation decide (Charnes 1952). The
tableau stores only the lines of variables between their bounds; a row of S is computed when it is
needed, which is rare. A program that fixes other variables continues from the same tableau, whose
reduced scores remain optimal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray, IntArray

__all__ = ["FOUND", "GIVEN_UP", "NOTHING_FITS", "CountProgram", "Tableau", "best_vertex"]
__all__ += ["fits", "new_tableau", "next_vertex", "vertex_bound"]

FOUND, GIVEN_UP, NOTHING_FITS = 0, 1, 2
"""The possible outcomes of the method."""

MAX_BETWEEN = 256
"""Maximum number of variables between their bounds; beyond it, the method gives up."""

MAX_EXCHANGES = 4
"""Maximum number of pivots per row and variable on average; beyond it, the method may cycle."""

OFF = 1e-9
"""Feasibility tolerance on bounds."""

MIN_PIVOT = 1e-7
"""Smaller entries of the tableau are not pivots."""

ZERO = 1e-12
"""Smaller entries are rounding errors."""

GOLDEN = 0.6180339887498949
"""Multiples by squares are spread evenly modulo 1, without the symmetries of a graph."""


class CountProgram(NamedTuple):
    """The program of a component: rows over the places ``begin[i]:end[i]``."""

    eta: FloatArray
    """Scores; ``-inf`` for a variable that is fixed to 0, ``inf`` for one that is fixed to 1."""
    first: int
    """The number of the first variable."""
    variable: IntArray
    """For each place, the number of a variable."""
    negated: BoolArray
    begin: IntArray
    end: IntArray
    low: FloatArray
    high: FloatArray


class Tableau(NamedTuple):
    """The tableau: nonbasic variables and rows are columns, and the others depend on them.

    Indices from n on denote rows.
    """

    x: FloatArray
    """The vertex."""
    low: FloatArray
    """Bounds of variables, then of rows."""
    high: FloatArray
    on: IntArray
    """For each column, its nonbasic variable or row."""
    upper: BoolArray
    """For each column, whether it is on its upper bound."""
    gain: FloatArray
    """For each column, its reduced score."""
    bias: FloatArray
    """For each column, the perturbation of its reduced score, which decides between equal ones."""
    column: IntArray
    """For each variable and row, its column, -1 for none."""
    between: IntArray
    """For each line, its basic variable."""
    line: IntArray
    """For each variable, its line, -1 for none."""
    lines: FloatArray
    """The basic variable of each line in terms of the columns."""
    row: FloatArray
    """The leaving variable or row in terms of the columns."""
    places: IntArray
    """Workspace for indices of columns."""
    n_lines: IntArray
    """(1,) the number of lines; more than there is room for after giving up."""


@kernel
def new_tableau(program: CountProgram) -> Tableau:
    """Return the tableau without rows: each variable is a column, at the better of its bounds."""
    n, k = len(program.eta), len(program.low)
    most = min(n, k, MAX_BETWEEN)
    of = Tableau(
        np.zeros(n),
        np.zeros(n + k),
        np.ones(n + k),
        np.arange(n),
        np.zeros(n, dtype=np.bool_),
        np.zeros(n),
        np.zeros(n),
        np.full(n + k, -1),
        np.empty(most, dtype=np.int64),
        np.full(n, -1),
        np.empty((most, n)),
        np.empty(n),
        np.empty(n, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )
    _write_scores(program, of)
    return of


@leaf
def _write_scores(program: CountProgram, of: Tableau) -> None:
    """Write the reduced scores of variables that are all columns, and the bounds of rows.

    The perturbation takes each score farther from zero, by a different amount.
    """
    n = len(of.x)
    for v in range(n):
        of.column[v] = v
        if abs(program.eta[v]) < np.inf:
            of.gain[v] = program.eta[v]
        size = 1.0 + GOLDEN * v * v % 1.0
        of.bias[v] = size if of.gain[v] > 0.0 else -size
    for i in range(len(program.low)):
        of.low[n + i], of.high[n + i] = _bounds(i, program)


@kernel
def best_vertex(program: CountProgram, x: FloatArray, y: FloatArray) -> int:
    """Write an optimal vertex and the multipliers of the rows.

    The reduced score of variable v, ``eta_v - (S^T y)_v``, is at most 0 if v is off, and at least 0
    if it is on.

    Returns
    -------
    int
        `FOUND`, `GIVEN_UP` or `NOTHING_FITS`. The multipliers then prove infeasibility:
        `vertex_bound` with zero scores is negative (Farkas' lemma).
    """
    tableau = new_tableau(program)
    outcome: int = next_vertex(program, tableau, y)
    _copy(tableau.x, x)
    return outcome


@leaf
def next_vertex(program: CountProgram, of: Tableau, y: FloatArray) -> int:
    """Do what `best_vertex` does, from the tableau of the program with other variables fixed.

    The vertex is in the tableau, which must be replaced after `GIVEN_UP`.
    """
    n, k = len(of.x), len(y)
    _begin(program, of)
    for _ in range(100 + MAX_EXCHANGES * (n + k)):
        leaving, was = _farthest_off(program, of)
        if leaving < 0:
            for i in range(k):
                at = of.column[n + i]
                y[i] = of.gain[at] if at >= 0 else 0.0
            return FOUND
        _express(leaving, program, of)
        entering = _choose(leaving, was, program, of)
        if entering < 0:
            sign = 1.0 if was < of.low[leaving] else -1.0
            for i in range(k):
                at = of.column[n + i]
                y[i] = sign * of.row[at] if at >= 0 else 0.0
            if leaving >= n:
                y[leaving - n] = -sign
            return NOTHING_FITS
        _exchange(leaving, was, entering, program, of)
        if of.n_lines[0] > len(of.between) or interrupted():
            break
    return GIVEN_UP


@leaf
def _begin(program: CountProgram, of: Tableau) -> None:
    """Set each column to the better of its bounds, and compute what depends on them."""
    n, values = len(of.x), of.row
    for v in range(n):
        score = program.eta[v]
        of.low[v] = 1.0 if score == np.inf else 0.0
        of.high[v] = 0.0 if score == -np.inf else 1.0
    for j in range(n):
        q = of.on[j]
        sign = of.gain[j] if of.gain[j] != 0.0 else of.bias[j]
        if sign != 0.0:
            of.upper[j] = sign > 0.0
        values[j] = of.high[q] if of.upper[j] else of.low[q]
        if q < n:
            of.x[q] = values[j]
    for at in range(of.n_lines[0]):
        value, line = 0.0, of.lines[at]
        for j in range(n):
            value += line[j] * values[j]
        of.x[of.between[at]] = value


@leaf
def _bounds(i: int, program: CountProgram) -> tuple[float, float]:
    """Return the bounds of a row. They are finite, since those of the variables are."""
    least = most = 0.0
    for place in range(program.begin[i], program.end[i]):
        if program.negated[place]:
            least -= 1.0
        else:
            most += 1.0
    return max(least, program.low[i]), min(most, program.high[i])


@leaf
def _count(i: int, program: CountProgram, x: FloatArray) -> float:
    """Return the value of a row."""
    total = 0.0
    for place in range(program.begin[i], program.end[i]):
        value = x[program.variable[place] - program.first]
        total += -value if program.negated[place] else value
    return total


@leaf
def _farthest_off(program: CountProgram, of: Tableau) -> tuple[int, float]:
    """Return the row or variable with the largest violation, and its value; -1 if there is none."""
    n, found, value, most = len(of.x), -1, 0.0, OFF
    for i in range(len(program.low)):
        if of.column[n + i] < 0:
            now = _count(i, program, of.x)
            off = max(of.low[n + i] - now, now - of.high[n + i])
            if off > most:
                found, value, most = n + i, now, off
    for at in range(of.n_lines[0]):
        v = of.between[at]
        now = of.x[v]
        off = max(of.low[v] - now, now - of.high[v])
        if off > most:
            found, value, most = v, now, off
    return found, value


@leaf
def _express(leaving: int, program: CountProgram, of: Tableau) -> None:
    """Write the leaving row or variable in terms of the columns."""
    n, row = len(of.x), of.row
    if leaving < n:
        _copy(of.lines[of.line[leaving]], row)
        return
    row[:] = 0.0
    i = leaving - n
    for place in range(program.begin[i], program.end[i]):
        v = program.variable[place] - program.first
        sign = -1.0 if program.negated[place] else 1.0
        if of.line[v] < 0:
            row[of.column[v]] += sign
            continue
        line = of.lines[of.line[v]]
        for j in range(n):
            row[j] += sign * line[j]


@leaf
def _choose(leaving: int, was: float, program: CountProgram, of: Tableau) -> int:
    """Return the entering column, after flipping others to their opposite bounds; -1 for none.

    This is the column with the smallest ratio. If flipping all columns does not suffice, the
    program is infeasible.
    """
    n, row = len(of.x), of.row
    rising = was < of.low[leaving]
    missing = of.low[leaving] - was if rising else was - of.high[leaving]
    n_able = 0
    for j in range(n):
        slope = row[j] if rising else -row[j]
        if slope < -MIN_PIVOT if of.upper[j] else slope > MIN_PIVOT:
            q = of.on[j]
            if of.low[q] < of.high[q]:
                of.places[n_able] = j
                n_able += 1
    while n_able > 0:
        best, least = 0, (np.inf, np.inf)
        for k in range(n_able):
            j = of.places[k]
            ratio = abs(of.gain[j] / row[j]), abs(of.bias[j] / row[j])
            if ratio < least:
                best, least = k, ratio
        j = of.places[best]
        q = of.on[j]
        span = of.high[q] - of.low[q]
        if missing <= span * abs(row[j]) + OFF:
            return int(j)
        missing -= span * abs(row[j])
        _move(j, -span if of.upper[j] else span, of)
        of.upper[j] = not of.upper[j]
        n_able -= 1
        of.places[best] = of.places[n_able]
    return -1


@leaf
def _move(j: int, step: float, of: Tableau) -> None:
    """Change the value of a column, and of all basic variables that depend on it."""
    q = of.on[j]
    if q < len(of.x):
        of.x[q] += step
    for at in range(of.n_lines[0]):
        slope = of.lines[at, j]
        if slope != 0.0:
            of.x[of.between[at]] += slope * step


@leaf
def _exchange(leaving: int, was: float, j: int, program: CountProgram, of: Tableau) -> None:
    """Pivot: put the leaving row or variable on its bound in a column.

    The number of lines exceeds their capacity if there is no room for a new one.
    """
    n, row, entering, pivot = len(of.x), of.row, of.on[j], of.row[j]
    now = of.x[leaving] if leaving < n else _count(leaving - n, program, of.x)
    rising = was < of.low[leaving]
    target = of.low[leaving] if rising else of.high[leaving]
    _move(j, (target - now) / pivot, of)
    n_lines = of.n_lines[0]
    at = n_lines
    if leaving < n:
        of.x[leaving], at = target, of.line[leaving]
        of.line[leaving] = -1
    n_places = 0
    for k in range(n):
        if abs(row[k]) > ZERO and k != j:
            row[k] /= -pivot
            of.places[n_places] = k
            n_places += 1
        else:
            row[k] = 0.0
    row[j] = 1.0 / pivot
    for k in of.places[:n_places]:
        of.gain[k] += of.gain[j] * row[k]
        of.bias[k] += of.bias[j] * row[k]
    of.gain[j] /= pivot
    of.bias[j] /= pivot
    for other in range(n_lines):
        slope = of.lines[other, j]
        if slope != 0.0 and other != at:
            line = of.lines[other]
            for k in of.places[:n_places]:
                line[k] += slope * row[k]
            line[j] = slope / pivot
    of.on[j], of.upper[j] = leaving, not rising
    of.column[leaving], of.column[entering] = j, -1
    if entering < n:
        if at == n_lines:
            of.n_lines[0] += 1
            if at == len(of.lines):
                return
        _copy(row, of.lines[at])
        of.between[at], of.line[entering] = entering, at
    elif at < n_lines:
        of.n_lines[0] = last = n_lines - 1
        if at < last:
            _copy(of.lines[last], of.lines[at])
            of.between[at] = of.between[last]
            of.line[of.between[at]] = at


@leaf
def fits(program: CountProgram, x: FloatArray) -> bool:
    """Return whether integral values satisfy the bounds of all rows."""
    for i in range(len(program.low)):
        if not program.low[i] - OFF <= _count(i, program, x) <= program.high[i]:
            return False
    return True


@leaf
def _copy(source: FloatArray, target: FloatArray) -> None:
    """Copy values; assigning to a slice would allocate an array."""
    for j in range(len(source)):
        target[j] = source[j]


@leaf
def vertex_bound(program: CountProgram, y: FloatArray, reduced: FloatArray) -> float:
    """Return an upper bound on all solutions, for any multipliers; write the reduced scores.

    The infinite scores of variables that are fixed to 1 are left out.
    """
    bound = 0.0
    for v in range(len(reduced)):
        reduced[v] = program.eta[v] if abs(program.eta[v]) < np.inf else 0.0
    for i in range(len(y)):
        if y[i] == 0.0:
            continue
        low, high = _bounds(i, program)
        bound += y[i] * (high if y[i] > 0.0 else low)
        for place in range(program.begin[i], program.end[i]):
            v = program.variable[place] - program.first
            reduced[v] += y[i] if program.negated[place] else -y[i]
    for v in range(len(reduced)):
        if program.eta[v] == np.inf or (reduced[v] > 0.0 and program.eta[v] > -np.inf):
            bound += reduced[v]
    return bound
