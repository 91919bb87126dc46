"""Sums over all trees of a sentence from the inverse of its Laplacian, where little cancels.

With G the inverse of the Laplacian, an arc from h to m of weight w has the probability ``w (G[m, m]
- G[h, m])`` (Koo et al. 2007). The words are eliminated without subtractions (Grassmann, Taksar &
Heyman 1985), and G follows from the pivots and shares in the reverse order, again by sums of
positive numbers. Only the difference of two entries of G cancels: where more than a few digits
would be lost, `lpsmap_factors_struct.matrix_tree.elimination` sums instead, in several times the
time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import BoolArray, FloatArray

MIN_DIFFERENCE = 1e-4
"""Minimum of ``1 - G[h, m] / G[m, m]`` for arcs: differences keep twelve of sixteen digits."""

MAX_ENTRY = 1e200
"""Largest magnitude of the entries of G."""


class Inverse(NamedTuple):
    """Workspace for up to `n` words."""

    rows: FloatArray
    """For every word, its arc from the root and from each word when it is eliminated."""
    into: FloatArray
    """(n, n) for every word, the shares of it in earlier words when it is eliminated."""
    g: FloatArray
    """(n, n) the inverse."""
    columns: FloatArray
    """(n, n) its transpose."""
    moved: FloatArray
    """(n, n) the product of the change of the Laplacian with the inverse; or empty."""
    holds: BoolArray
    """Whether G is accurate."""


@kernel
def inverse_of(n: int, moves: bool) -> Inverse:
    """Return a workspace for up to `n` words, with space for changes if `moves`."""
    size = n * n
    return Inverse(
        np.empty(size + n),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(size if moves else 0),
        np.zeros(1, dtype=np.bool_),
    )


@leaf
def expect_by_inverse(
    n: int,
    arcs: FloatArray,
    change: FloatArray,
    inverse: Inverse,
    expected: FloatArray,
    d_expected: FloatArray,
) -> float:
    """Write the arcs' probabilities, and their changes; return the logarithm of the sum over trees.

    Parameters
    ----------
    n
        Number of words.
    arcs, change
        (n, n + 1) weights of arcs, and the changes of their logarithms; changes may be empty.
    inverse
        Workspace.
    expected, d_expected
        (n, n + 1) the results; changes may be empty.

    Returns
    -------
    float
        NaN if a difference cancels too much, or there is no tree.
    """
    log, inverse.holds[0] = _invert(n, arcs, inverse), False
    if np.isnan(log):
        return np.nan
    g, columns, width = inverse.g, inverse.columns, n + 1
    for word in range(n):
        own, row = g[word * n + word], word * width
        if not own < MAX_ENTRY:
            return np.nan
        least, cancelled = MIN_DIFFERENCE * own, 0
        expected[row] = arcs[row] * own
        weights, target = arcs[row + 1 : row + width], expected[row + 1 : row + width]
        others = columns[word * n : word * n + n]
        for head in range(n):
            difference = own - others[head]
            target[head] = weights[head] * difference
            cancelled += (weights[head] > 0.0) & (difference < least)
        if cancelled > 0:
            return np.nan
    inverse.holds[0] = True
    if len(change) > 0:
        _move_expectations(n, arcs, change, inverse, d_expected)
    return log


@leaf
def keep_inverse(n: int, arcs: FloatArray, inverse: Inverse, kept: FloatArray) -> None:
    """Write the weights of arcs, and G; NaN if G is not accurate."""
    size, square = n * (n + 1), n * n
    if not inverse.holds[0]:
        kept[0] = np.nan
        return
    for i in range(size):
        kept[i] = arcs[i]
    for i in range(square):
        kept[size + i] = inverse.g[i]


@leaf
def move_by_kept(
    n: int, kept: FloatArray, change: FloatArray, inverse: Inverse, d_expected: FloatArray
) -> None:
    """Write what `_move_expectations` does, with the inverse that `keep_inverse` wrote."""
    size = n * (n + 1)
    for i in range(n):
        for j in range(n):
            at = kept[size + i * n + j]
            inverse.g[i * n + j] = inverse.columns[j * n + i] = at
    _move_expectations(n, kept[:size], change, inverse, d_expected)


@leaf
def _invert(n: int, arcs: FloatArray, inverse: Inverse) -> float:
    """Write the inverse of the Laplacian; return the logarithm of its determinant, or NaN."""
    rows, into, g, columns, _, _ = inverse
    width, log = n + 1, 0.0
    for at in range(n * width):
        rows[at] = arcs[at]
    for k in range(n - 1, -1, -1):
        row, pivot = rows[k * width : k * width + k + 1], 0.0
        for j in range(k + 1):
            pivot += row[j]
        if not pivot > 0.0:
            return np.nan
        log += np.log(pivot)
        rows[k * width + k + 1] = pivot
        for i in range(k):
            share = rows[i * width + k + 1] / pivot
            into[k * n + i] = share
            _add(rows[i * width : i * width + k + 1], share, row)
    for k in range(n):
        pivot, first = rows[k * width + k + 1], k * n
        own, across = g[first : first + k], columns[first : first + k]
        own[:], across[:], back = 0.0, 0.0, 0.0
        for h in range(k):
            share = rows[k * width + 1 + h] / pivot
            _add(own, share, g[h * n : h * n + k])
            _add(across, into[first + h], columns[h * n : h * n + k])
        for h in range(k):
            g[h * n + k], columns[h * n + k] = across[h], own[h]
            back += rows[k * width + 1 + h] * across[h]
        g[first + k] = columns[first + k] = (1.0 + back) / pivot
    return log


@leaf
def _move_expectations(
    n: int, arcs: FloatArray, change: FloatArray, inverse: Inverse, d_expected: FloatArray
) -> None:
    """Write the changes of the arcs' probabilities: the inverse G changes by ``-G dL G``."""
    g, columns, moved, width = inverse.g, inverse.columns, inverse.moved, n + 1
    d_columns, d = inverse.into, inverse.rows
    for word in range(n):
        row, total = word * width, arcs[word * width] * change[word * width]
        for head in range(n):
            move = arcs[row + 1 + head] * change[row + 1 + head]
            d[head] = -move
            total += move
        d[word] += total
        _combine(moved[word * n : word * n + n], d, g)
    for head in range(n):  # the transpose of -G dL G, from the columns of dL G
        for word in range(n):
            d[word] = -moved[word * n + head]
        _combine(d_columns[head * n : head * n + n], d, columns)
    for word in range(n):
        row, own, d_own = word * width, g[word * n + word], d_columns[word * n + word]
        d_expected[row] = arcs[row] * (change[row] * own + d_own)
        for head in range(n):
            at = row + 1 + head
            move = change[at] * (own - columns[word * n + head])
            d_expected[at] = arcs[at] * (move + d_own - d_columns[word * n + head])


@leaf
def _combine(target: FloatArray, factors: FloatArray, table: FloatArray) -> None:
    """Write the sum of multiples of the rows of a square table, four rows at a time."""
    n, i = len(target), 0
    target[:] = 0.0
    while i + 4 <= n:
        a, b, c, d = factors[i], factors[i + 1], factors[i + 2], factors[i + 3]
        rows = table[i * n : i * n + 4 * n]
        one, two, three, four = rows[:n], rows[n : 2 * n], rows[2 * n : 3 * n], rows[3 * n :]
        for j in range(n):
            target[j] += (a * one[j] + b * two[j]) + (c * three[j] + d * four[j])
        i += 4
    while i < n:
        _add(target, factors[i], table[i * n : i * n + n])
        i += 1


@leaf
def _add(target: FloatArray, factor: float, source: FloatArray) -> None:
    """Add a multiple of an array to another one."""
    for j in range(len(target)):
        target[j] += factor * source[j]
