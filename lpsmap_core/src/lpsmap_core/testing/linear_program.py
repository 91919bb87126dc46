"""A best point within linear constraints, by the dual simplex method on a dense tableau.

It is for small programs: the conformance kit compares linear constraints of factors with oracles.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.model.linear_constraints import LinearConstraints
from lpsmap_jit.arrays import FloatArray

ROUNDING = 1e-9
"""Values and entries of the tableau below this are treated as 0."""


def best_point(constraints: LinearConstraints, scores: FloatArray) -> FloatArray | None:
    """Return a maximum of ``<scores, x>`` over ``low <= A x <= high`` and ``0 <= x <= 1``, or None.

    Every column starts at the better of its bounds. A basic variable beyond its bounds leaves the
    basis for the nearer bound, in exchange for the column whose gain vanishes first (Lemke 1954).
    Ties are broken by the lowest number, so that the method ends (Bland 1977). Return None if there
    is no feasible point.
    """
    n, m = len(scores), len(constraints.low)
    table = np.zeros((m, n))
    np.add.at(table, (constraints.row, constraints.column), constraints.coefficient)
    low, high = np.append(np.zeros(n), constraints.low), np.append(np.ones(n), constraints.high)
    value, gain = np.append(1.0 * (scores > 0.0), np.zeros(m)), np.array(scores, dtype=np.float64)
    inside, outside = np.arange(n, n + m), np.arange(n)
    while True:
        value[inside] = table @ value[outside]
        below = value[inside] < low[inside] - ROUNDING
        beyond = below | (value[inside] > high[inside] + ROUNDING)
        if not beyond.any():
            return value[:n]
        leaving = np.where(beyond, inside, n + m).argmin()
        slope = table[leaving] if below[leaving] else -table[leaving]
        at_low = value[outside] == low[outside]
        eligible = np.where(at_low, slope > ROUNDING, slope < -ROUNDING)
        eligible &= low[outside] < high[outside]
        if not eligible.any():
            return None
        ratio = np.abs(np.divide(gain, slope, out=np.full(n, np.inf), where=eligible))
        tied = ratio <= ratio.min() + ROUNDING * np.abs(scores).max()
        entering = np.where(tied, outside, n + m).argmin()
        side = low if below[leaving] else high
        value[inside[leaving]] = side[inside[leaving]]
        inside[leaving], outside[entering] = outside[entering], inside[leaving]
        row = -table[leaving] / table[leaving, entering]
        row[entering] = 1.0 / table[leaving, entering]
        column = table[:, entering].copy()
        table[:, entering] = 0.0
        table += np.outer(column, row)
        table[leaving] = row
        step = gain[entering]
        gain[entering] = 0.0
        gain += step * row
