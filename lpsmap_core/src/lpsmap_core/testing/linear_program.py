"""A best point within linear constraints, by the dual simplex method on a dense tableau.

For small programs: the conformance kit holds descriptions of factors to their oracles by it.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.model.linear import LinearConstraints
from lpsmap_jit.arrays import FloatArray

__all__ = ["best_point"]

ROUNDING = 1e-9
"""Values and entries of the tableau below this count as 0."""


def best_point(known: LinearConstraints, scores: FloatArray) -> FloatArray | None:
    """Return what maximises ``<scores, x>`` over ``low <= A x <= high`` and ``0 <= x <= 1``.

    Every column begins at the better of its bounds. What is beyond its bounds then leaves for the
    nearer one, in exchange for the column whose gain is gone first (Lemke 1954). Of ties the lowest
    number is taken, so that the method ends (Bland 1977). None if nothing fits.
    """
    n, m = len(scores), len(known.low)
    table = np.zeros((m, n))
    np.add.at(table, (known.row, known.column), known.coefficient)
    low, high = np.append(np.zeros(n), known.low), np.append(np.ones(n), known.high)
    value, gain = np.append(1.0 * (scores > 0.0), np.zeros(m)), np.array(scores, dtype=np.float64)
    inside, outside = np.arange(n, n + m), np.arange(n)
    while True:
        value[inside] = table @ value[outside]
        below = value[inside] < low[inside] - ROUNDING
        off = below | (value[inside] > high[inside] + ROUNDING)
        if not off.any():
            return value[:n]
        leaving = np.where(off, inside, n + m).argmin()
        slope = table[leaving] if below[leaving] else -table[leaving]
        at_low = value[outside] == low[outside]
        able = np.where(at_low, slope > ROUNDING, slope < -ROUNDING)
        able &= low[outside] < high[outside]
        if not able.any():
            return None
        ratio = np.abs(np.divide(gain, slope, out=np.full(n, np.inf), where=able))
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
