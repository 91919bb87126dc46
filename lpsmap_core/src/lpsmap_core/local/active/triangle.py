"""A packed lower triangle: solves with it and its transpose, and the deletion of a row.

Row i of a triangle L has its i + 1 numbers from ``i (i + 1) / 2`` on, so another row is appended at
the end. With a thousand rows or more, reading the triangle takes all the time. Forward solves
therefore treat several columns at once, and backward solves four rows at a time.
"""

from __future__ import annotations

import numpy as np

from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.compile import leaf, summing_leaf

MIN_AT_ONCE = 3
"""Number of columns from which the pass for four columns is faster."""


@leaf
def row_start(i: int) -> int:
    """Return the position of row i."""
    return i * (i + 1) // 2


# -------------------------------------------------------------------- solutions


@leaf
def solve_forward(triangle: FloatArray, count: int, columns: FloatArray, n_columns: int) -> None:
    """Overwrite the first `count` numbers of some columns by ``L^-1`` times them.

    There is a right-hand side per row of `columns`. Rows up to the next multiple of four are
    overwritten.
    """
    for c in range(0, n_columns, 4):
        if n_columns - c >= MIN_AT_ONCE:
            _solve_four(triangle, count, columns[c], columns[c + 1], columns[c + 2], columns[c + 3])
            continue
        for column in range(c, n_columns):
            x = columns[column]
            for i in range(count):
                row = triangle[row_start(i) : row_start(i + 1)]
                x[i] = (x[i] - _product(row, x, i)) / row[i]


@leaf
def _solve_four(
    triangle: FloatArray, count: int, x: FloatArray, y: FloatArray, z: FloatArray, w: FloatArray
) -> None:
    """Solve for four columns, by pairs of rows."""
    for i in range(0, count - 1, 2):
        upper = triangle[row_start(i) : row_start(i + 1)]
        lower = triangle[row_start(i + 1) : row_start(i + 2)]
        a, b, c, d, e, f, g, h = _eight_products(upper, lower, x, y, z, w, i)
        first, between, second = 1.0 / upper[i], lower[i], 1.0 / lower[i + 1]
        x[i], y[i] = (x[i] - a) * first, (y[i] - b) * first
        z[i], w[i] = (z[i] - c) * first, (w[i] - d) * first
        x[i + 1] = (x[i + 1] - e - between * x[i]) * second
        y[i + 1] = (y[i + 1] - f - between * y[i]) * second
        z[i + 1] = (z[i + 1] - g - between * z[i]) * second
        w[i + 1] = (w[i + 1] - h - between * w[i]) * second
    if count % 2:
        i = count - 1
        row = triangle[row_start(i) : row_start(count)]
        for column in (x, y, z, w):
            column[i] = (column[i] - _product(row, column, i)) / row[i]


@summing_leaf
def _product(row: FloatArray, x: FloatArray, n: int) -> float:
    """Return the inner product of the first n numbers."""
    total = 0.0
    for j in range(np.uint64(n)):
        total += row[j] * x[j]
    return total


@summing_leaf
def _eight_products(
    upper: FloatArray,
    lower: FloatArray,
    x: FloatArray,
    y: FloatArray,
    z: FloatArray,
    w: FloatArray,
    n: int,
) -> tuple[float, float, float, float, float, float, float, float]:
    """Return the inner products of two rows with four columns, of the first n numbers."""
    a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(np.uint64(n)):
        r, s = upper[j], lower[j]
        a += r * x[j]
        b += r * y[j]
        c += r * z[j]
        d += r * w[j]
        e += s * x[j]
        f += s * y[j]
        g += s * z[j]
        h += s * w[j]
    return a, b, c, d, e, f, g, h


@leaf
def solve_backward(triangle: FloatArray, count: int, x: FloatArray) -> None:
    """Overwrite the first numbers of x by ``L^-T x``."""
    i = count - 1
    while i >= 3:
        p, q = triangle[row_start(i) :], triangle[row_start(i - 1) :]
        r, s = triangle[row_start(i - 2) :], triangle[row_start(i - 3) :]
        a = x[i] / p[i]
        b = (x[i - 1] - a * p[i - 1]) / q[i - 1]
        c = (x[i - 2] - a * p[i - 2] - b * q[i - 2]) / r[i - 2]
        d = (x[i - 3] - a * p[i - 3] - b * q[i - 3] - c * r[i - 3]) / s[i - 3]
        x[i], x[i - 1], x[i - 2], x[i - 3] = a, b, c, d
        for j in range(np.uint64(i - 3)):
            x[j] -= (a * p[j] + b * q[j]) + (c * r[j] + d * s[j])
        i -= 4
    while i >= 0:
        row = triangle[row_start(i) :]
        a = x[i] / row[i]
        x[i] = a
        for j in range(i):
            x[j] -= a * row[j]
        i -= 1


# -------------------------------------------------------------------- deletion of a row


@leaf
def delete_row(
    k: int, count: int, triangle: FloatArray, cosine: FloatArray, sine: FloatArray
) -> None:
    """Delete row k; Givens rotations of neighbouring columns restore the triangle.

    Each row moves up by one and is rotated. Four rows are rotated at a time, because the rotations
    along a row depend on each other. Writes the rotations from k to ``count - 2``, for `rotate`.
    """
    i = k
    while i < count - 1:
        first = k
        if i - k >= 4 and i + 4 < count:
            _move_four_up(i, k, triangle, cosine, sine)
            first, last = i, i + 4
        else:
            last = i + 1
            _move_up(i, k, triangle)
        for row in range(i, last):
            _finish_row(row, first, triangle, cosine, sine)
        i = last


@leaf
def _move_up(i: int, k: int, triangle: FloatArray) -> None:
    """Move the numbers of row i + 1 up to column k to row i."""
    source, target = row_start(i + 1), row_start(i)
    for j in range(k + 1):
        triangle[target + j] = triangle[source + j]


@leaf
def _move_four_up(
    i: int, k: int, triangle: FloatArray, cosine: FloatArray, sine: FloatArray
) -> None:
    """Move the four rows after row i up, rotated from column k to i."""
    for row in range(i, i + 4):
        _move_up(row, k, triangle)
    # each row is read before the next one overwrites it
    at, step = row_start(i) + k, np.uint64(i)
    a, b = np.uint64(at), np.uint64(at + i + 1)
    c, d = np.uint64(at + 2 * i + 3), np.uint64(at + 3 * i + 6)
    w, x, y, z = triangle[a], triangle[b], triangle[c], triangle[d]
    for j in range(np.uint64(k), step):
        cos, sin = cosine[j], sine[j]
        p, q = triangle[a + step + np.uint64(2)], triangle[b + step + np.uint64(3)]
        r, s = triangle[c + step + np.uint64(4)], triangle[d + step + np.uint64(5)]
        triangle[a], triangle[b] = cos * w + sin * p, cos * x + sin * q
        triangle[c], triangle[d] = cos * y + sin * r, cos * z + sin * s
        w, x, y, z = cos * p - sin * w, cos * q - sin * x, cos * r - sin * y, cos * s - sin * z
        a, b, c, d = a + np.uint64(1), b + np.uint64(1), c + np.uint64(1), d + np.uint64(1)
    triangle[a], triangle[b], triangle[c], triangle[d] = w, x, y, z


@leaf
def _finish_row(
    i: int, first: int, triangle: FloatArray, cosine: FloatArray, sine: FloatArray
) -> None:
    """Rotate row i from column `first` on, and compute the row's own rotation."""
    source, target = row_start(i + 1), row_start(i)
    x = triangle[target + first]
    for j in range(first, i):
        y = triangle[source + j + 1]
        triangle[target + j] = cosine[j] * x + sine[j] * y
        x = cosine[j] * y - sine[j] * x
    y = triangle[source + i + 1]
    radius = np.hypot(x, y)
    cosine[i], sine[i] = x / radius, y / radius
    triangle[target + i] = radius


@leaf
def rotate(k: int, count: int, cosine: FloatArray, sine: FloatArray, x: FloatArray) -> None:
    """Update ``x = L^-1 b`` for the deletion of row k from L and b."""
    carried = x[k]
    for i in range(k, count - 1):
        y = x[i + 1]
        x[i] = cosine[i] * carried + sine[i] * y
        carried = cosine[i] * y - sine[i] * carried
