"""The multipliers of rows and columns, by Newton's method on the dual problem.

The projection of scores s to matchings, rows full, is ``z_ij = clip(s_ij - r_i - c_j, 0, 1)`` with
``c >= 0``. The multipliers r and c minimise a convex function that is quadratic in pieces, of which
there are few: a semismooth Newton method (Qi & Sun 1993), damped as far as rows and columns are off
and with a line search, takes about ten steps. Columns drop out of each step's equations, one by
one, so that a step solves as many as there are rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lpsmap_core import kernel, leaf

__all__ = ["matching_duals"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_STEPS = 16
"""Newton steps, after which what was found is given up: sharper scores take the loop less long."""

CLOSE = 1e-10
"""Rows and columns that sum to their bounds within this are a start from which the faces follow."""

DAMPING, DAMPED_RANGE = 0.3, 8.0
"""What is added to the diagonal is this times how far sums are off; less where the scores' range is
larger, for then multipliers have farther to go."""

MOST_HALVINGS = 12
"""Halvings of a step in the line search."""

ARMIJO = 1e-4
"""Least decrease of the dual function, relative to what its slope promises."""


@leaf
def _threshold(x: FloatArray, first: int, stride: int, n: int, least: float) -> float:
    """Return t, at least `least`, for which ``clip(x - t, 0, 1)`` of some entries sums to 1.

    Newton's method on the falling sum, between the bounds that it has found.
    """
    low, high, t = -np.inf, np.inf, -np.inf
    for k in range(n):
        t = max(t, x[first + k * stride])
    t -= 1.0
    for _ in range(60):
        total, free = -1.0, 0
        for k in range(n):
            y = x[first + k * stride] - t
            if y >= 1.0:
                total += 1.0
            elif y > 0.0:
                total += y
                free += 1
        if abs(total) <= 1e-13:
            break
        if total > 0.0:
            low = t
        else:
            high = t
        step = t + total / free if free > 0 else np.nan
        if not low < step < high:
            step = (
                high - 1.0
                if low == -np.inf
                else low + 1.0
                if high == np.inf
                else 0.5 * (low + high)
            )
        if step == t:
            break
        t = step
    return max(t, least)


@leaf
def _dual(
    scores: FloatArray,
    m: int,
    n: int,
    rows: FloatArray,
    columns: FloatArray,
    x: FloatArray,
    off_rows: FloatArray,
    off_columns: FloatArray,
) -> float:
    """Write ``s - r - c`` and how far sums are off; return the dual function."""
    value = 0.0
    for j in range(n):
        off_columns[j] = -1.0
    for i in range(m):
        total = -1.0
        for j in range(n):
            y = scores[i * n + j] - rows[i] - columns[j]
            x[i * n + j] = y
            z = min(1.0, max(0.0, y))
            if z > 0.0:
                value += z * (y - 0.5 * z)
                total += z
                off_columns[j] += z
        off_rows[i] = total
        value += rows[i]
    for j in range(n):
        value += columns[j]
        if columns[j] == 0.0 and off_columns[j] < 0.0:
            off_columns[j] = 0.0  # not full, as it may be
    return value


@leaf
def _newton_step(
    x: FloatArray,
    m: int,
    n: int,
    damping: float,
    off_rows: FloatArray,
    off_columns: FloatArray,
    columns: FloatArray,
    matrix: FloatArray,
    d_rows: FloatArray,
    d_columns: FloatArray,
) -> None:
    """Write the damped Newton step of the multipliers."""
    for i in range(m):
        for k in range(m):
            matrix[i * m + k] = 0.0
        matrix[i * m + i] = damping
        d_rows[i] = off_rows[i]
    for j in range(n):
        moves = columns[j] > 0.0 or off_columns[j] > 0.0
        diagonal = damping
        for i in range(m):
            if 0.0 < x[i * n + j] < 1.0:
                diagonal += 1.0
                matrix[i * m + i] += 1.0
        d_columns[j] = off_columns[j] / diagonal if moves else 0.0
        if not moves:
            continue
        for i in range(m):
            if 0.0 < x[i * n + j] < 1.0:
                d_rows[i] -= d_columns[j]
                for k in range(i + 1):
                    if 0.0 < x[k * n + j] < 1.0:
                        matrix[i * m + k] -= 1.0 / diagonal
    _solve(matrix, m, d_rows)
    for j in range(n):
        if not (columns[j] > 0.0 or off_columns[j] > 0.0):
            continue
        diagonal, total = damping, 0.0
        for i in range(m):
            if 0.0 < x[i * n + j] < 1.0:
                diagonal += 1.0
                total += d_rows[i]
        d_columns[j] = (off_columns[j] - total) / diagonal


@leaf
def _solve(matrix: FloatArray, m: int, b: FloatArray) -> None:
    """Solve equations with a positive definite matrix, given below its diagonal, in place."""
    for j in range(m):
        pivot = max(matrix[j * m + j], 1e-300)
        for i in range(j + 1, m):
            factor = matrix[i * m + j] / pivot
            if factor != 0.0:
                for k in range(j + 1, i + 1):
                    matrix[i * m + k] -= factor * matrix[k * m + j]
                b[i] -= factor * b[j]
    for j in range(m - 1, -1, -1):
        total = b[j]
        for i in range(j + 1, m):
            total -= matrix[i * m + j] * b[i]
        b[j] = total / max(matrix[j * m + j], 1e-300)


@leaf
def _minimise(
    scores: FloatArray,
    m: int,
    n: int,
    r: FloatArray,
    c: FloatArray,
    x: FloatArray,
    off: FloatArray,
    other: FloatArray,
    step: FloatArray,
    matrix: FloatArray,
) -> bool:
    """Find the multipliers of one instance; return whether they were found."""
    off_r, off_c, d_r, d_c = off[:m], off[m:], step[:m], step[m:]
    low, high = np.inf, -np.inf
    for k in range(m * n):
        low, high = min(low, scores[k]), max(high, scores[k])
    scale = DAMPING * min(1.0, DAMPED_RANGE / max(high - low, 1.0))
    for i in range(m):
        r[i] = _threshold(scores, i * n, 1, n, -np.inf)
        for j in range(n):
            x[i * n + j] = scores[i * n + j] - r[i]
    for j in range(n):
        c[j] = _threshold(x, j, n, m, 0.0)
    value = _dual(scores, m, n, r, c, x, off_r, off_c)
    for _ in range(MOST_STEPS):
        worst = 0.0
        for k in range(m + n):
            worst = max(worst, abs(off[k]))
        if worst <= CLOSE:
            return True
        _newton_step(x, m, n, scale * min(worst, 1.0), off_r, off_c, c, matrix, d_r, d_c)
        value = _search(scores, m, n, value, r, c, x, off, other, step)
    return False


@leaf
def _search(
    scores: FloatArray,
    m: int,
    n: int,
    value: float,
    r: FloatArray,
    c: FloatArray,
    x: FloatArray,
    off: FloatArray,
    other: FloatArray,
    step: FloatArray,
) -> float:
    """Go along a step as far as the dual function falls, with ``c >= 0``; return its value."""
    trial_r, trial_c = other[:m], other[m : m + n]
    off_r, off_c = other[m + n : 2 * m + n], other[2 * m + n :]
    length, found = 1.0, value
    for _ in range(MOST_HALVINGS):
        slope = 0.0
        for i in range(m):
            trial_r[i] = r[i] + length * step[i]
            slope -= off[i] * length * step[i]
        for j in range(n):
            trial_c[j] = max(0.0, c[j] + length * step[m + j])
            slope -= off[m + j] * (trial_c[j] - c[j])
        found = _dual(scores, m, n, trial_r, trial_c, x, off_r, off_c)
        if found <= value + ARMIJO * slope + 1e-14 * abs(value):
            break
        length *= 0.5
    for i in range(m):
        r[i], off[i] = trial_r[i], off_r[i]
    for j in range(n):
        c[j], off[m + j] = trial_c[j], off_c[j]
    return found


@kernel
def matching_duals(
    scores: FloatArray,
    heights: IntArray,
    widths: IntArray,
    rows: FloatArray,
    columns: FloatArray,
    found: FloatArray,
) -> None:
    """Find the multipliers of a batch; the shorter side of each instance is the one to be full.

    Parameters
    ----------
    scores
        (size, m, n), finite within the heights and widths.
    heights, widths
        (size,) how many rows and columns take part; instances without any are left out.
    rows, columns
        (size, m) and (size, n) the multipliers.
    found
        (size,) whether they were found: 1, or 0.
    """
    size, m, n = scores.shape
    table, x, matrix = np.empty(m * n), np.empty(m * n), np.empty(min(m, n) ** 2)
    multipliers, off, step = np.empty(m + n), np.empty(m + n), np.empty(m + n)
    other = np.empty(2 * (m + n))
    for b in range(size):
        short, long = min(heights[b], widths[b]), max(heights[b], widths[b])
        found[b] = 0.0
        if short == 0:
            continue
        turned, both = heights[b] > widths[b], short + long
        for i in range(short):
            for j in range(long):
                table[i * long + j] = scores[b, j, i] if turned else scores[b, i, j]
        r, c = multipliers[:short], multipliers[short:both]
        done = _minimise(
            table, short, long, r, c, x, off[:both], other[: 2 * both], step[:both], matrix
        )
        found[b] = 1.0 if done else 0.0
        for i in range(heights[b]):
            rows[b, i] = c[i] if turned else r[i]
        for j in range(widths[b]):
            columns[b, j] = r[j] if turned else c[j]
