"""The factorised Gram matrix of an active set.

An active set has scaled columns ``w_k`` (structures over ``delta``), linear terms ``theta_k`` and
weights ``p_k`` that sum to one. Its optimum without signs solves

    (G + 1 1^T) p = theta - tau 1,   sum(p) = 1,        G = W^T W,

whose matrix is positive definite exactly if the columns are affinely independent. With its Cholesky
factor L and ``L y = 1``, the change of the weights along a residual r costs one forward and one
backward substitution: ``L^T x = L^-1 r - tau y`` with tau such that the x sum to the number asked
for.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.arrays import FloatArray
from lpsmap_core.kernels.compile import leaf
from lpsmap_core.kernels.interrupts import interrupted
from lpsmap_core.local.active.memory import ActiveSet

__all__ = [
    "append_structure",
    "dependency",
    "fill_gram",
    "newcomer_direction",
    "refactorise",
    "remove",
    "residual_direction",
    "weight_residual",
]

DEPENDENT = 1e-9
"""Relative pivot below which a column counts as affinely dependent. Pivots of 0/1 columns that are
independent are ratios of small integers, far above it."""


# -------------------------------------------------------------------- the Gram matrix


@leaf
def fill_gram(place: int, own: ActiveSet, inverse_delta: FloatArray, dense: FloatArray) -> None:
    """Fill the Gram matrix between the structure at `place` and the active ones, itself included.

    `dense` is all zero, at least as long as the factor has slots, and is left so.
    """
    capacity = len(own.order)
    begin = place * own.width
    end = begin + own.of_variables[place]
    norm = 0.0
    for e in range(begin, end):
        i = own.entry[e]
        w = own.value[e] * inverse_delta[i]
        norm += w * w
        dense[i] = w * inverse_delta[i]
    own.gram[place * capacity + place] = norm
    for k in range(own.active[0]):
        other = own.order[k]
        first = other * own.width
        index = own.entry[first : first + own.of_variables[other]]
        value = own.value[first : first + own.of_variables[other]]
        dot = 0.0
        for e in range(len(index)):
            dot += dense[index[e]] * value[e]
        own.gram[place * capacity + other] = dot
        own.gram[other * capacity + place] = dot
    for e in range(begin, end):
        dense[own.entry[e]] = 0.0


# -------------------------------------------------------------------- its factor


@leaf
def _dot(x: FloatArray, y: FloatArray) -> float:
    """Return the inner product of x and as many entries of y, in four interleaved sums."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    n = len(x)
    for quarter in range(n // 4):
        i = np.uint64(4 * quarter)
        a += x[i] * y[i]
        b += x[i + np.uint64(1)] * y[i + np.uint64(1)]
        c += x[i + np.uint64(2)] * y[i + np.uint64(2)]
        d += x[i + np.uint64(3)] * y[i + np.uint64(3)]
    for rest in range(n - n % 4, n):
        a += x[rest] * y[rest]
    return (a + b) + (c + d)


@leaf
def append_structure(place: int, own: ActiveSet, row: FloatArray) -> bool:
    """Extend the factor by a structure, the next in the order; false if it is dependent.

    Leaves in `row` the solution of ``L row = k`` for the structure's column k of the matrix.
    """
    capacity = len(own.order)
    count = own.active[0]
    pivot = own.gram[place * capacity + place] + 1.0
    norm = pivot
    for i in range(count):
        total = own.gram[place * capacity + own.order[i]] + 1.0
        at = i * capacity
        row[i] = (total - _dot(own.chol[at : at + i], row)) / own.chol[at + i]
        pivot -= row[i] * row[i]
    if pivot <= DEPENDENT * norm:
        return False
    diagonal = np.sqrt(pivot)
    at = count * capacity
    ones = 1.0
    for i in range(count):
        own.chol[at + i] = row[i]
        ones -= row[i] * own.ones[i]
    own.chol[at + count] = diagonal
    own.ones[count] = ones / diagonal
    return True


@leaf
def remove(k: int, own: ActiveSet) -> None:
    """Take the k-th structure out; Givens rotations restore the factor's triangle."""
    capacity = len(own.order)
    last = own.active[0] - 1
    place = own.order[k]
    for i in range(k, last):
        own.order[i] = own.order[i + 1]
        own.p[i] = own.p[i + 1]
        for j in range(i + 2):
            own.chol[i * capacity + j] = own.chol[(i + 1) * capacity + j]
    own.order[last] = place
    own.active[0] = last
    for i in range(k, last):
        x = own.chol[i * capacity + i]
        y = own.chol[i * capacity + i + 1]
        radius = np.hypot(x, y)
        cosine, sine = x / radius, y / radius
        for row in range(i, last):
            at = row * capacity + i
            x, y = own.chol[at], own.chol[at + 1]
            own.chol[at] = cosine * x + sine * y
            own.chol[at + 1] = cosine * y - sine * x
        x, y = own.ones[i], own.ones[i + 1]
        own.ones[i] = cosine * x + sine * y
        own.ones[i + 1] = cosine * y - sine * x


@leaf
def refactorise(own: ActiveSet, row: FloatArray) -> None:
    """Factorise from the stored Gram matrix; structures found dependent leave."""
    count, kept = own.active[0], 0
    own.active[0] = 0
    for k in range(count):
        place = own.order[k]
        if append_structure(place, own, row):
            own.order[k] = own.order[kept]
            own.order[kept] = place
            own.p[kept] = own.p[k]
            kept += 1
            own.active[0] = kept
        if interrupted():
            _normalise(own)
            return


@leaf
def _normalise(own: ActiveSet) -> None:
    """Let the weights of a set that lost some structures sum to one again."""
    total = 0.0
    for k in range(own.active[0]):
        total += own.p[k]
    for k in range(own.active[0]):
        own.p[k] = own.p[k] / total if total > 0.0 else 1.0 / float(own.active[0])


# -------------------------------------------------------------------- changes of the weights


@leaf
def _back_substitute(x: FloatArray, own: ActiveSet) -> None:
    """Overwrite x by ``L^-T x``."""
    capacity = len(own.order)
    for i in range(own.active[0] - 1, -1, -1):
        at = i * capacity
        x[i] /= own.chol[at + i]
        factor = x[i]
        row = own.chol[at : at + i]
        for j in range(i):
            x[j] -= factor * row[j]


@leaf
def newcomer_direction(gap: float, x: FloatArray, own: ActiveSet) -> None:
    """Write the way to the optimum of a set whose newest structure alone has a residual, `gap`."""
    capacity = len(own.order)
    last = own.active[0] - 1
    squares = 0.0
    for i in range(last + 1):
        squares += own.ones[i] * own.ones[i]
    gap /= own.chol[last * capacity + last]
    tau = gap * own.ones[last] / squares
    for i in range(last + 1):
        x[i] = -tau * own.ones[i]
    x[last] += gap
    _back_substitute(x, own)


@leaf
def residual_direction(total: float, x: FloatArray, own: ActiveSet) -> None:
    """Overwrite a residual x by the w with ``G w = x - tau 1``, for some tau, and that sum."""
    capacity = len(own.order)
    count = own.active[0]
    squares, product = 0.0, 0.0
    for i in range(count):
        at = i * capacity
        x[i] = (x[i] - _dot(own.chol[at : at + i], x)) / own.chol[at + i]
        ones = own.ones[i]
        squares += ones * ones
        product += ones * x[i]
    tau = (product - total) / squares
    for i in range(count):
        x[i] -= tau * own.ones[i]
    _back_substitute(x, own)


@leaf
def weight_residual(own: ActiveSet, residual: FloatArray) -> tuple[float, float, float]:
    """Write theta - G p less its mean, which is zero at the optimum of the set.

    Returns the sum of the weights, the scale of theta and the largest residual.
    """
    capacity = len(own.order)
    count = own.active[0]
    sum_of_weights, mean, scale, largest = 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        place = own.order[i]
        at = place * capacity
        total = own.theta[place]
        scale = max(scale, abs(total))
        for j in range(count):
            total -= own.gram[at + own.order[j]] * own.p[j]
        residual[i] = total
        mean += total / count
        sum_of_weights += own.p[i]
    for i in range(count):
        residual[i] -= mean
        largest = max(largest, abs(residual[i]))
    return sum_of_weights, scale, largest


@leaf
def dependency(row: FloatArray, own: ActiveSet) -> None:
    """Overwrite ``L^-1 k`` of a dependent column by its affine combination of active ones."""
    _back_substitute(row, own)
