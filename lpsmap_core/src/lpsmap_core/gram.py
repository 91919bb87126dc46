"""The store of active sets, and the factorised Gram matrix of each.

An active set has scaled columns ``w_k`` (structures over ``delta``), linear terms ``theta_k`` and
weights ``p_k`` that sum to one. Its optimum without signs solves

    (G + 1 1^T) p = theta - tau 1,   sum(p) = 1,        G = W^T W,

whose matrix is positive definite exactly if the columns are affinely independent. With its Cholesky
factor L and ``L y = 1``, the change of the weights along a residual r costs one forward and one
backward substitution: ``L^T x = L^-1 r - tau y`` with tau such that the x sum to the number asked
for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import leaf

__all__ = [
    "Problem",
    "Store",
    "append",
    "copy_store",
    "dependency",
    "fill_gram",
    "make_store",
    "newcomer_direction",
    "refactorise",
    "remove",
    "residual_direction",
    "weight_residual",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

DEPENDENT = 1e-9
"""Relative pivot below which a column counts as affinely dependent. Pivots of 0/1 columns that are
independent are ratios of small integers, far above it."""


class Store(NamedTuple):
    """Active sets of a bucket's factors, with room for ``capacity`` structures each.

    A structure's ``size`` nonzeros are ``entry`` (a slot of its factor, or arity + an additional)
    and ``value``, from ``start[f] + place * width[f]``; the first ``of_variables`` are slots.
    ``order[f, :active[f]]`` are the places of the active ones; ``gram`` is by place, the lower
    triangle ``chol`` of G + 1 1^T and ``ones``, the solution of ``chol ones = 1``, by order.
    """

    start: IntArray
    width: IntArray
    entry: npt.NDArray[np.uint32]
    value: FloatArray
    size: IntArray
    of_variables: IntArray
    order: IntArray
    active: IntArray
    p: FloatArray
    theta: FloatArray
    gram: FloatArray
    chol: FloatArray
    ones: FloatArray
    status: IntArray


class Problem(NamedTuple):
    """What the kernels need to know of a bucket and of its current scores."""

    offsets: IntArray
    additional_offsets: IntArray
    inverse_delta: FloatArray
    a: FloatArray
    eta_v: FloatArray
    huge: float
    """Scores of at least this magnitude stand for forbidden or forced variables. All structures of
    a feasible face agree on them, so that they are left out of sums whose differences matter."""


def make_store(width: IntArray, capacity: int) -> Store:
    """Return empty active sets for factors whose vertices have at most `width` nonzeros."""
    n = len(width)
    start = np.zeros(n, dtype=np.int64)
    np.cumsum(width[:-1] * capacity, out=start[1:])
    total = int(width.sum()) * capacity
    return Store(
        start=start,
        width=width,
        entry=np.empty(total, dtype=np.uint32),
        value=np.empty(total),
        size=np.zeros(n * capacity, dtype=np.int64),
        of_variables=np.zeros(n * capacity, dtype=np.int64),
        order=np.tile(np.arange(capacity), n),
        active=np.zeros(n, dtype=np.int64),
        p=np.zeros(n * capacity),
        theta=np.zeros(n * capacity),
        gram=np.zeros(n * capacity * capacity),
        chol=np.zeros(n * capacity * capacity),
        ones=np.zeros(n * capacity),
        status=np.zeros(n, dtype=np.int64),
    )


@leaf
def copy_store(old: Store, old_capacity: int, new: Store, new_capacity: int) -> None:
    """Copy active sets into a store with more room."""
    for f in range(len(old.active)):
        new.active[f] = old.active[f]
        new.status[f] = old.status[f]
        before, after = f * old_capacity, f * new_capacity
        for k in range(old_capacity):
            new.order[after + k] = old.order[before + k]
            new.p[after + k] = old.p[before + k]
            new.ones[after + k] = old.ones[before + k]
            new.theta[after + k] = old.theta[before + k]
            new.size[after + k] = old.size[before + k]
            new.of_variables[after + k] = old.of_variables[before + k]
            for j in range(old_capacity):
                new.gram[(after + k) * new_capacity + j] = old.gram[(before + k) * old_capacity + j]
                new.chol[(after + k) * new_capacity + j] = old.chol[(before + k) * old_capacity + j]
        for e in range(old_capacity * old.width[f]):
            new.entry[new.start[f] + e] = old.entry[old.start[f] + e]
            new.value[new.start[f] + e] = old.value[old.start[f] + e]


# -------------------------------------------------------------------- the Gram matrix


@leaf
def fill_gram(
    f: int, place: int, store: Store, capacity: int, problem: Problem, dense: FloatArray
) -> None:
    """Fill the Gram matrix between the structure at `place` and the active ones, itself included.

    `dense` is all zero, at least as long as the factor has slots, and is left so.
    """
    lo, base = problem.offsets[f], f * capacity
    begin = store.start[f] + place * store.width[f]
    end = begin + store.of_variables[base + place]
    norm = 0.0
    for e in range(begin, end):
        i = store.entry[e]
        w = store.value[e] * problem.inverse_delta[lo + i]
        norm += w * w
        dense[i] = w * problem.inverse_delta[lo + i]
    store.gram[(base + place) * capacity + place] = norm
    for k in range(store.active[f]):
        other = store.order[base + k]
        first = store.start[f] + other * store.width[f]
        index = store.entry[first : first + store.of_variables[base + other]]
        value = store.value[first : first + store.of_variables[base + other]]
        dot = 0.0
        for e in range(len(index)):
            dot += dense[index[e]] * value[e]
        store.gram[(base + place) * capacity + other] = dot
        store.gram[(base + other) * capacity + place] = dot
    for e in range(begin, end):
        dense[store.entry[e]] = 0.0


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
def append(f: int, place: int, store: Store, capacity: int, row: FloatArray) -> bool:
    """Extend the factor by a structure, the next in the order; false if it is dependent.

    Leaves in `row` the solution of ``L row = k`` for the structure's column k of the matrix.
    """
    count, base = store.active[f], f * capacity
    pivot = store.gram[(base + place) * capacity + place] + 1.0
    norm = pivot
    for i in range(count):
        total = store.gram[(base + place) * capacity + store.order[base + i]] + 1.0
        at = (base + i) * capacity
        row[i] = (total - _dot(store.chol[at : at + i], row)) / store.chol[at + i]
        pivot -= row[i] * row[i]
    if pivot <= DEPENDENT * norm:
        return False
    diagonal = np.sqrt(pivot)
    at = (base + count) * capacity
    ones = 1.0
    for i in range(count):
        store.chol[at + i] = row[i]
        ones -= row[i] * store.ones[base + i]
    store.chol[at + count] = diagonal
    store.ones[base + count] = ones / diagonal
    return True


@leaf
def remove(f: int, k: int, store: Store, capacity: int) -> None:
    """Take the k-th structure out; Givens rotations restore the factor's triangle."""
    base = f * capacity
    last = store.active[f] - 1
    place = store.order[base + k]
    for i in range(k, last):
        store.order[base + i] = store.order[base + i + 1]
        store.p[base + i] = store.p[base + i + 1]
        for j in range(i + 2):
            store.chol[(base + i) * capacity + j] = store.chol[(base + i + 1) * capacity + j]
    store.order[base + last] = place
    store.active[f] = last
    for i in range(k, last):
        x = store.chol[(base + i) * capacity + i]
        y = store.chol[(base + i) * capacity + i + 1]
        radius = np.hypot(x, y)
        cosine, sine = x / radius, y / radius
        for row in range(i, last):
            at = (base + row) * capacity + i
            x, y = store.chol[at], store.chol[at + 1]
            store.chol[at] = cosine * x + sine * y
            store.chol[at + 1] = cosine * y - sine * x
        x, y = store.ones[base + i], store.ones[base + i + 1]
        store.ones[base + i] = cosine * x + sine * y
        store.ones[base + i + 1] = cosine * y - sine * x


@leaf
def refactorise(f: int, store: Store, capacity: int, row: FloatArray) -> None:
    """Factorise from the stored Gram matrix; structures found dependent leave."""
    base = f * capacity
    count, kept = store.active[f], 0
    store.active[f] = 0
    for k in range(count):
        place = store.order[base + k]
        if append(f, place, store, capacity, row):
            store.order[base + k] = store.order[base + kept]
            store.order[base + kept] = place
            store.p[base + kept] = store.p[base + k]
            kept += 1
            store.active[f] = kept


# -------------------------------------------------------------------- changes of the weights


@leaf
def _back_substitute(f: int, x: FloatArray, store: Store, capacity: int) -> None:
    """Overwrite x by ``L^-T x``."""
    base = f * capacity
    for i in range(store.active[f] - 1, -1, -1):
        at = (base + i) * capacity
        x[i] /= store.chol[at + i]
        factor = x[i]
        row = store.chol[at : at + i]
        for j in range(i):
            x[j] -= factor * row[j]


@leaf
def newcomer_direction(f: int, gap: float, x: FloatArray, store: Store, capacity: int) -> None:
    """Write the way to the optimum of a set whose newest structure alone has a residual, `gap`."""
    base, last = f * capacity, store.active[f] - 1
    squares = 0.0
    for i in range(last + 1):
        squares += store.ones[base + i] * store.ones[base + i]
    gap /= store.chol[(base + last) * capacity + last]
    tau = gap * store.ones[base + last] / squares
    for i in range(last + 1):
        x[i] = -tau * store.ones[base + i]
    x[last] += gap
    _back_substitute(f, x, store, capacity)


@leaf
def residual_direction(f: int, total: float, x: FloatArray, store: Store, capacity: int) -> None:
    """Overwrite a residual x by the w with ``G w = x - tau 1``, for some tau, and that sum."""
    base, count = f * capacity, store.active[f]
    squares, product = 0.0, 0.0
    for i in range(count):
        at = (base + i) * capacity
        x[i] = (x[i] - _dot(store.chol[at : at + i], x)) / store.chol[at + i]
        ones = store.ones[base + i]
        squares += ones * ones
        product += ones * x[i]
    tau = (product - total) / squares
    for i in range(count):
        x[i] -= tau * store.ones[base + i]
    _back_substitute(f, x, store, capacity)


@leaf
def weight_residual(
    f: int, store: Store, capacity: int, residual: FloatArray
) -> tuple[float, float, float]:
    """Write theta - G p less its mean, which is zero at the optimum of the set.

    Returns the sum of the weights, the scale of theta and the largest residual.
    """
    base, count = f * capacity, store.active[f]
    sum_of_weights, mean, scale, largest = 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        place = store.order[base + i]
        at = (base + place) * capacity
        total = store.theta[base + place]
        scale = max(scale, abs(total))
        for j in range(count):
            total -= store.gram[at + store.order[base + j]] * store.p[base + j]
        residual[i] = total
        mean += total / count
        sum_of_weights += store.p[base + i]
    for i in range(count):
        residual[i] -= mean
        largest = max(largest, abs(residual[i]))
    return sum_of_weights, scale, largest


@leaf
def dependency(f: int, row: FloatArray, store: Store, capacity: int) -> None:
    """Overwrite ``L^-1 k`` of a dependent column by its affine combination of active ones."""
    _back_substitute(f, row, store, capacity)
