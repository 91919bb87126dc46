"""The factorised Gram matrix of an active set.

An active set has scaled columns ``w_k`` (structures over ``delta``), linear terms ``theta_k`` and
weights ``p_k`` that sum to one. Without sign constraints its optimum solves

    (G + 1 1^T) p = theta - tau 1,   sum(p) = 1,        G = W^T W,

The matrix is positive definite exactly if the columns are affinely independent. With its Cholesky
factor L and ``L y = 1``, the change of the weights along a residual r takes one forward and one
backward substitution: ``L^T x = L^-1 r - tau y``, with tau such that the x have the required sum.

The matrix itself is not stored. Structures have far fewer nonzeros than there are structures, so
residuals are computed from ``z = W p``, and the columns of newcomers from their nonzeros.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.records import largest_arity
from lpsmap_core.local.active.memory import MAX_NEWCOMERS, ActiveSet, n_newcomers, sets_at
from lpsmap_core.local.active.triangle import (
    delete_row,
    rotate,
    row_start,
    solve_backward,
    solve_forward,
)
from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.compile import kernel, leaf
from lpsmap_jit.interrupts import interrupted

DEPENDENT = 1e-9
"""Relative pivot below which a column counts as affinely dependent. The pivots of independent 0/1
columns are ratios of small integers, far above it."""

LANES = MAX_NEWCOMERS + 1


class GramWorkspace(NamedTuple):
    """Workspace of a pass over some sets."""

    columns: FloatArray
    """The residual, then the columns of newcomers: one per row, as long as the largest set."""
    direction: FloatArray
    cosine: FloatArray
    sine: FloatArray
    dense: FloatArray
    """Newcomers by slot, one lane each; zero between calls."""
    lanes: int
    """Number of lanes in `dense`: one, or `LANES` if several newcomers may join at once."""


@kernel
def make_gram_workspace(sets: Any, rows: IntArray) -> GramWorkspace:
    """Return the workspace for the sets of some factors."""
    record, capacity, lanes, n_columns = sets_at(sets), 0, 1, 2
    for f in rows:
        capacity = max(capacity, record.capacity[f])
    arity = largest_arity(rows, record.factors.offsets)
    if n_newcomers(capacity - 2) > 1:  # for the largest set that is not full
        lanes, n_columns = LANES, LANES + 1  # multiples of four, with the residual and without
    numbers, dense = np.zeros((n_columns + 3, capacity)), np.zeros(lanes * arity)
    direction, cosine, sine = numbers[n_columns], numbers[n_columns + 1], numbers[n_columns + 2]
    return GramWorkspace(numbers[:n_columns], direction, cosine, sine, dense, lanes)


# -------------------------------------------------------------------- residuals


@leaf
def mean_residual(
    active_set: ActiveSet, inverse_delta: FloatArray, z: FloatArray, work: GramWorkspace
) -> tuple[float, float]:
    """Write theta - W^T z minus its mean, which is zero at the optimum, into the first column.

    The residuals of waiting structures follow those of the active ones. Returns the scale of theta
    and the largest residual of an active structure.
    """
    residual, count = work.columns[0], active_set.active[0]
    mean, scale, largest = 0.0, 0.0, 0.0
    for k in range(count + active_set.waiting[0]):
        place = active_set.order[k]
        begin = place * active_set.width
        total = active_set.theta[place]
        for e in range(begin, begin + active_set.of_variables[place]):
            i = active_set.entry[e]
            total -= z[i] * inverse_delta[i] * active_set.value[e]
        residual[k] = total
        if k < count:
            mean += total / count
            scale = max(scale, abs(active_set.theta[place]))
    for k in range(count + active_set.waiting[0]):
        residual[k] -= mean
        if k < count:
            largest = max(largest, abs(residual[k]))
    return scale, largest


@leaf
def forward_residual(active_set: ActiveSet, work: GramWorkspace) -> None:
    """Overwrite the first column r by ``L^-1 r``."""
    solve_forward(active_set.chol, active_set.active[0], work.columns, 1)


@leaf
def find_direction(total: float, active_set: ActiveSet, work: GramWorkspace) -> None:
    """Write the direction x with ``G x = r - tau 1`` for some tau and with the sum `total`.

    The first column holds ``L^-1 r``.
    """
    count, residual, direction = active_set.active[0], work.columns[0], work.direction
    # with y = L^-1 1: tau = (<y, L^-1 r> - total) / ||y||^2, then L^T x = L^-1 r - tau y
    squares, product = 0.0, 0.0
    for i in range(count):
        squares += active_set.ones[i] * active_set.ones[i]
        product += active_set.ones[i] * residual[i]
    tau = (product - total) / squares
    for i in range(count):
        direction[i] = residual[i] - tau * active_set.ones[i]
    solve_backward(active_set.chol, count, direction)


@leaf
def find_combination(active_set: ActiveSet, work: GramWorkspace) -> None:
    """Write the affine combination of active structures that equals a dependent one.

    The dependent structure is the first of the latest call of `append_structures`.
    """
    for i in range(active_set.active[0]):
        work.direction[i] = work.columns[1, i]
    solve_backward(active_set.chol, active_set.active[0], work.direction)


# -------------------------------------------------------------------- structures join and leave


@leaf
def append_structures(
    first: int,
    n: int,
    active_set: ActiveSet,
    inverse_delta: FloatArray,
    work: GramWorkspace,
    settled: bool,
) -> int:
    """Extend the set by the independent ones of n newcomers; return their number.

    The newcomers are in the order from `first` on, after the active structures. Accepted ones move
    to the end of the active structures, with their weights. The first column is updated: the
    numbers r of the active structures, followed by those of the newcomers, become ``L^-1 r``. If
    `settled`, those of the active structures are zero.
    """
    base = active_set.active[0]
    _fill_columns(first, n, active_set, inverse_delta, work)
    if settled:
        work.columns[0, :base] = 0.0
        solve_forward(active_set.chol, base, work.columns[1:], n)
    else:
        solve_forward(active_set.chol, base, work.columns, n + 1)
    joined = 0
    for c in range(n):
        if not _append_row(base, joined, c, n, active_set, work):
            continue
        count = base + joined
        place, weight = active_set.order[first + c], active_set.p[first + c]
        active_set.order[first + c], active_set.p[first + c] = (
            active_set.order[count],
            active_set.p[count],
        )
        active_set.order[count], active_set.p[count] = place, weight
        joined += 1
    active_set.active[0] = base + joined
    return joined


@leaf
def _append_row(
    base: int, joined: int, c: int, n: int, active_set: ActiveSet, work: GramWorkspace
) -> bool:
    """Compute the row of newcomer c of n after those that joined; false if it is dependent.

    The columns of those that joined follow the first column.
    """
    columns, count = work.columns, base + joined
    row, mine = active_set.chol[row_start(count) : row_start(count + 1)], columns[c + 1]
    # the new row l of L solves L l = G_k + 1; forward solves did its part of the older rows
    for j in range(base):
        row[j] = mine[j]
    for j in range(base, count):
        other = active_set.chol[row_start(j) : row_start(j + 1)]
        total = columns[j - base + 1, base + c]
        for i in range(j):
            total -= other[i] * row[i]
        row[j] = total / other[j]
    # l_kk^2 = G_kk + 1 - ||l||^2, and the next numbers of L^-1 1 and of L^-1 r
    norm = mine[base + c]
    pivot, ones, residual = norm, 1.0, columns[0, base + c]
    for j in range(count):
        pivot -= row[j] * row[j]
        ones -= row[j] * active_set.ones[j]
        residual -= row[j] * columns[0, j]
    if pivot <= DEPENDENT * norm:
        return False
    row[count] = np.sqrt(pivot)
    active_set.ones[count] = ones / row[count]
    columns[0, count] = residual / row[count]
    for i in range(base, base + n):
        columns[joined + 1, i] = mine[i]
    return True


@leaf
def _fill_columns(
    first: int, n: int, active_set: ActiveSet, inverse_delta: FloatArray, work: GramWorkspace
) -> None:
    """Write the columns of G + 1 1^T of the newcomers, with active structures and themselves."""
    dense, lanes, count = work.dense, 1 if n == 1 else LANES, active_set.active[0]
    for c in range(n):
        place = active_set.order[first + c]
        begin = place * active_set.width
        for e in range(begin, begin + active_set.of_variables[place]):
            i = active_set.entry[e]
            dense[lanes * i + c] = active_set.value[e] * inverse_delta[i] * inverse_delta[i]
    for k in range(count + n):
        place = active_set.order[k] if k < count else active_set.order[first + k - count]
        begin = place * active_set.width
        index = active_set.entry[begin : begin + active_set.of_variables[place]]
        value = active_set.value[begin : begin + active_set.of_variables[place]]
        if n == 1:
            work.columns[1, k] = 1.0 + _inner_product(index, value, dense, lanes)
        else:
            _inner_products(index, value, dense, k, work.columns)
    for c in range(n):
        place = active_set.order[first + c]
        begin = place * active_set.width
        for e in range(begin, begin + active_set.of_variables[place]):
            dense[lanes * active_set.entry[e] + c] = 0.0


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
    """Write the inner products of the k-th structure, plus 1, into the columns of all newcomers."""
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
def remove(k: int, active_set: ActiveSet, work: GramWorkspace) -> None:
    """Remove the k-th structure, also from the first column ``L^-1 r``."""
    count = active_set.active[0]
    place = active_set.order[k]
    for i in range(k, count - 1):
        active_set.order[i], active_set.p[i] = active_set.order[i + 1], active_set.p[i + 1]
    active_set.order[count - 1] = place
    delete_row(k, count, active_set.chol, work.cosine, work.sine)
    rotate(k, count, work.cosine, work.sine, active_set.ones)
    rotate(k, count, work.cosine, work.sine, work.columns[0])
    active_set.active[0] = count - 1


@leaf
def refactorise(active_set: ActiveSet, inverse_delta: FloatArray, work: GramWorkspace) -> None:
    """Recompute the factor from the structures; dependent ones leave."""
    count, at_once = active_set.active[0], 1 if work.lanes == 1 else MAX_NEWCOMERS
    active_set.active[0] = 0
    for first in range(0, count, at_once):
        append_structures(first, min(at_once, count - first), active_set, inverse_delta, work, True)
        if interrupted():
            break
    if active_set.active[0] < count:
        _normalise(active_set)


@leaf
def _normalise(active_set: ActiveSet) -> None:
    """Normalise the weights of a set that lost some structures."""
    total = 0.0
    for k in range(active_set.active[0]):
        total += active_set.p[k]
    for k in range(active_set.active[0]):
        active_set.p[k] = (
            active_set.p[k] / total if total > 0.0 else 1.0 / float(active_set.active[0])
        )
