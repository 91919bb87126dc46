"""The factorised Gram matrix of an active set.

An active set has scaled columns ``w_k`` (structures over ``delta``), linear terms ``theta_k`` and
weights ``p_k`` that sum to one. Its optimum without signs solves

    (G + 1 1^T) p = theta - tau 1,   sum(p) = 1,        G = W^T W,

whose matrix is positive definite exactly if the columns are affinely independent. With its Cholesky
factor L and ``L y = 1``, the change of the weights along a residual r costs one forward and one
backward substitution: ``L^T x = L^-1 r - tau y`` with tau such that the x sum to the number asked
for.

The matrix itself is not kept: structures have far fewer nonzeros than there are structures, so that
residuals come from ``z = W p``, and the columns of newcomers from their nonzeros.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.local.active.memory import MOST_NEWCOMERS, ActiveSet, newcomers
from lpsmap_core.local.active.triangle import (
    rotate,
    solve_backward,
    solve_forward,
    start_of,
    take_row_out,
)
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.interrupts import interrupted

__all__ = [
    "Work",
    "append_structures",
    "exchange_shares",
    "forward_residual",
    "make_work",
    "mean_residual",
    "refactorise",
    "remove",
    "turn_to_optimum",
]

DEPENDENT = 1e-9
"""Relative pivot below which a column counts as affinely dependent. Pivots of 0/1 columns that are
independent are ratios of small integers, far above it."""

LANES = MOST_NEWCOMERS + 1


class Work(NamedTuple):
    """Scratch memory of a pass over some sets."""

    columns: FloatArray
    """The residual, then the columns of newcomers: one per row, as long as the largest set."""
    direction: FloatArray
    cosine: FloatArray
    sine: FloatArray
    dense: FloatArray
    """Zero between calls: newcomers by slot, one lane each."""
    lanes: int
    """Room for newcomers in `dense`: one, or `LANES` where several may join at once."""


@kernel
def make_work(capacity: int, arity: int) -> Work:
    """Return scratch memory for sets of some capacity, whose factors have some slots at most."""
    lanes, n_columns = 1, 2
    if newcomers(capacity - 2) > 1:  # of the largest set that is not full
        lanes, n_columns = LANES, LANES + 1  # whole fours, with the residual and without
    rows = np.zeros((n_columns + 3, capacity))
    direction, cosine, sine = rows[n_columns], rows[n_columns + 1], rows[n_columns + 2]
    return Work(rows[:n_columns], direction, cosine, sine, np.zeros(lanes * arity), lanes)


# -------------------------------------------------------------------- residuals


@leaf
def mean_residual(
    own: ActiveSet, inverse_delta: FloatArray, z: FloatArray, work: Work
) -> tuple[float, float]:
    """Write theta - W^T z less its mean, zero at the optimum of the set, into the first column.

    Structures that wait have theirs behind those of the active ones. Returns the scale of theta and
    the largest residual of an active structure.
    """
    residual, count = work.columns[0], own.active[0]
    mean, scale, largest = 0.0, 0.0, 0.0
    for k in range(count + own.waiting[0]):
        place = own.order[k]
        begin = place * own.width
        total = own.theta[place]
        for e in range(begin, begin + own.of_variables[place]):
            i = own.entry[e]
            total -= z[i] * inverse_delta[i] * own.value[e]
        residual[k] = total
        if k < count:
            mean += total / count
            scale = max(scale, abs(own.theta[place]))
    for k in range(count + own.waiting[0]):
        residual[k] -= mean
        if k < count:
            largest = max(largest, abs(residual[k]))
    return scale, largest


@leaf
def forward_residual(own: ActiveSet, work: Work) -> None:
    """Overwrite the first column r by ``L^-1 r``."""
    solve_forward(own.chol, own.active[0], work.columns, 1)


@leaf
def turn_to_optimum(total: float, own: ActiveSet, work: Work) -> None:
    """Write the direction x with ``G x = r - tau 1``, for some tau, and that sum.

    The first column has ``L^-1 r``.
    """
    count, residual, direction = own.active[0], work.columns[0], work.direction
    squares, product = 0.0, 0.0
    for i in range(count):
        squares += own.ones[i] * own.ones[i]
        product += own.ones[i] * residual[i]
    tau = (product - total) / squares
    for i in range(count):
        direction[i] = residual[i] - tau * own.ones[i]
    solve_backward(own.chol, count, direction)


@leaf
def exchange_shares(own: ActiveSet, work: Work) -> None:
    """Write the affine combination of active structures that a dependent one is.

    It was the first of those that `append_structures` was given last.
    """
    for i in range(own.active[0]):
        work.direction[i] = work.columns[1, i]
    solve_backward(own.chol, own.active[0], work.direction)


# -------------------------------------------------------------------- structures come and go


@leaf
def append_structures(
    first: int, n: int, own: ActiveSet, inverse_delta: FloatArray, work: Work, settled: bool
) -> int:
    """Extend the set by those of some structures that are independent; return how many.

    They stand in the order from `first` on, not before the active ones; accepted ones move to the
    active ones' end, with their weights. The first column is carried along: numbers r of the active
    ones and, behind them, of the newcomers become ``L^-1 r``. If `settled`, those of the active
    ones are zero.
    """
    base = own.active[0]
    _fill_columns(first, n, own, inverse_delta, work)
    if settled:
        work.columns[0, :base] = 0.0
        solve_forward(own.chol, base, work.columns[1:], n)
    else:
        solve_forward(own.chol, base, work.columns, n + 1)
    joined = 0
    for c in range(n):
        if not _append_row(base, joined, c, n, own, work):
            continue
        count = base + joined
        place, weight = own.order[first + c], own.p[first + c]
        own.order[first + c], own.p[first + c] = own.order[count], own.p[count]
        own.order[count], own.p[count] = place, weight
        joined += 1
    own.active[0] = base + joined
    return joined


@leaf
def _append_row(base: int, joined: int, c: int, n: int, own: ActiveSet, work: Work) -> bool:
    """Make the row of newcomer c of n behind those that joined; false if it is dependent.

    The columns of those that joined follow each other after the first.
    """
    columns, count = work.columns, base + joined
    row, mine = own.chol[start_of(count) : start_of(count + 1)], columns[c + 1]
    for j in range(base):
        row[j] = mine[j]
    for j in range(base, count):  # against newcomers that joined
        other = own.chol[start_of(j) : start_of(j + 1)]
        total = columns[j - base + 1, base + c]
        for i in range(j):
            total -= other[i] * row[i]
        row[j] = total / other[j]
    norm = mine[base + c]
    pivot, ones, residual = norm, 1.0, columns[0, base + c]
    for j in range(count):
        pivot -= row[j] * row[j]
        ones -= row[j] * own.ones[j]
        residual -= row[j] * columns[0, j]
    if pivot <= DEPENDENT * norm:
        return False
    row[count] = np.sqrt(pivot)
    own.ones[count] = ones / row[count]
    columns[0, count] = residual / row[count]
    for i in range(base, base + n):
        columns[joined + 1, i] = mine[i]
    return True


@leaf
def _fill_columns(
    first: int, n: int, own: ActiveSet, inverse_delta: FloatArray, work: Work
) -> None:
    """Write the columns of G + 1 1^T that some structures have with active ones and themselves."""
    dense, lanes, count = work.dense, 1 if n == 1 else LANES, own.active[0]
    for c in range(n):
        place = own.order[first + c]
        begin = place * own.width
        for e in range(begin, begin + own.of_variables[place]):
            i = own.entry[e]
            dense[lanes * i + c] = own.value[e] * inverse_delta[i] * inverse_delta[i]
    for k in range(count + n):
        place = own.order[k] if k < count else own.order[first + k - count]
        begin = place * own.width
        index = own.entry[begin : begin + own.of_variables[place]]
        value = own.value[begin : begin + own.of_variables[place]]
        if n == 1:
            work.columns[1, k] = 1.0 + _inner_product(index, value, dense, lanes)
        else:
            _inner_products(index, value, dense, k, work.columns)
    for c in range(n):
        place = own.order[first + c]
        begin = place * own.width
        for e in range(begin, begin + own.of_variables[place]):
            dense[lanes * own.entry[e] + c] = 0.0


@leaf
def _inner_product(
    index: npt.NDArray[np.uint32], value: FloatArray, dense: FloatArray, lanes: int
) -> float:
    """Return the inner product of a structure with the only newcomer."""
    total = 0.0
    for e in range(len(index)):
        total += dense[lanes * index[e]] * value[e]
    return total


@leaf
def _inner_products(
    index: npt.NDArray[np.uint32],
    value: FloatArray,
    dense: FloatArray,
    k: int,
    columns: FloatArray,
) -> None:
    """Write the inner products of the k-th structure, plus 1, into all newcomers' columns."""
    a, b, c, d, e, f, g = 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0
    for i in range(len(index)):
        x, at = value[i], np.uint64(LANES) * np.uint64(index[i])
        lane = dense[at : at + np.uint64(LANES)]
        a += x * lane[0]
        b += x * lane[1]
        c += x * lane[2]
        d += x * lane[3]
        e += x * lane[4]
        f += x * lane[5]
        g += x * lane[6]
    columns[1, k], columns[2, k], columns[3, k] = a, b, c
    columns[4, k], columns[5, k], columns[6, k], columns[7, k] = d, e, f, g


@leaf
def remove(k: int, own: ActiveSet, work: Work) -> None:
    """Take the k-th structure out, also of the first column ``L^-1 r``."""
    count = own.active[0]
    place = own.order[k]
    for i in range(k, count - 1):
        own.order[i], own.p[i] = own.order[i + 1], own.p[i + 1]
    own.order[count - 1] = place
    take_row_out(k, count, own.chol, work.cosine, work.sine)
    rotate(k, count, work.cosine, work.sine, own.ones)
    rotate(k, count, work.cosine, work.sine, work.columns[0])
    own.active[0] = count - 1


@leaf
def refactorise(own: ActiveSet, inverse_delta: FloatArray, work: Work) -> None:
    """Factorise from the structures; those found dependent leave."""
    count, at_once = own.active[0], 1 if work.lanes == 1 else MOST_NEWCOMERS
    own.active[0] = 0
    for first in range(0, count, at_once):
        append_structures(first, min(at_once, count - first), own, inverse_delta, work, True)
        if interrupted():
            break
    if own.active[0] < count:
        _normalise(own)


@leaf
def _normalise(own: ActiveSet) -> None:
    """Let the weights of a set that lost some structures sum to one again."""
    total = 0.0
    for k in range(own.active[0]):
        total += own.p[k]
    for k in range(own.active[0]):
        own.p[k] = own.p[k] / total if total > 0.0 else 1.0 / float(own.active[0])
