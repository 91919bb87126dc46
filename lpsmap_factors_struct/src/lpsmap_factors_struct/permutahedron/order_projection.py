"""Projection onto the permutahedron, the convex hull of the orderings of some items.

The local problem of n items is to maximise ``<a, z> - 1/2 ||z||^2`` where the positions ``w_i =
delta_i z_i`` lie in the permutahedron: any k items have positions of at least ``0 + 1 + ... + (k -
1)`` in all, and all items of exactly ``0 + ... + (n - 1)``, each times ``1 / (n - 1)``. With the
latter constraint alone, ``z_i = a_i - lambda delta_i``. If the k first of these positions, in their
order, are too small in all, then for the k with the largest violation these k items take the first
positions in the solution, and the others the last ones (decomposition, Fujishige 1980; Groenevelt
1991). Both parts are problems of the same form. The parts without a violation are the *blocks* of
the solution. With equal delta, they are those of an isotonic regression (Blondel et al. 2020).
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, kernel, largest_arity, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.permutahedron.merge_sort import sort_items

ROUNDING = 1e-15
"""Rounding of a sum of positions, relative to the sum of their magnitudes."""


@kernel
def project_orders(
    rows: IntArray,
    offsets: IntArray,
    delta: FloatArray,
    a: FloatArray,
    z: FloatArray,
    mean: FloatArray,
    block: IntArray,
) -> None:
    """Write the solutions of some factors.

    For each item, `mean` is its position ``delta z``, and `block` the first position of its block.
    """
    longest = largest_arity(rows, offsets)
    order, spare = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    ends = np.empty(longest, dtype=np.int64)
    for f in rows:
        lo, hi = offsets[f], offsets[f + 1]
        _project(delta[lo:hi], a[lo:hi], mean[lo:hi], block[lo:hi], order, spare, ends)
        for i in range(lo, hi):
            z[i] = mean[i] / delta[i]
        if interrupted():
            break


@leaf
def _project(
    delta: FloatArray,
    a: FloatArray,
    w: FloatArray,
    block: IntArray,
    order: IntArray,
    spare: IntArray,
    ends: IntArray,
) -> None:
    """Write the positions w and the blocks of one factor.

    Parts of the order are treated from the left to the right; `ends` is a stack of their ends.
    """
    n = len(a)
    if n == 0:
        return
    unit = 1.0 / (n - 1) if n > 1 else 0.0
    for i in range(n):
        order[i] = i
    begin, top, ends[0] = 0, 0, n
    while begin < n:
        items = order[begin : ends[top]]
        _project_onto_sum(items, unit * _sum_of_positions(begin, len(items)), delta, a, w)
        sort_items(items, w, spare)
        n_first = _most_violated(items, begin, unit, w)
        if n_first > 0:
            top += 1
            ends[top] = begin + n_first
            continue
        for i in items:
            block[i] = begin
        begin, top = ends[top], top - 1


@leaf
def _sum_of_positions(begin: int, n: int) -> float:
    """Return ``begin + (begin + 1) + ...``, of n terms."""
    return n * begin + 0.5 * n * (n - 1)


@leaf
def _project_onto_sum(
    items: IntArray, total: float, delta: FloatArray, a: FloatArray, w: FloatArray
) -> None:
    """Write the positions ``delta (a - lambda delta)`` of some items, whose sum is `total`.

    Scores count relative to the first item's, so that those of a large common size keep their
    digits.
    """
    common = a[items[0]] / delta[items[0]]
    products, squares = 0.0, 0.0
    for i in items:
        products += delta[i] * (a[i] - common * delta[i])
        squares += delta[i] * delta[i]
    multiplier = (products - total) / squares
    for i in items:
        w[i] = delta[i] * ((a[i] - common * delta[i]) - multiplier * delta[i])


@leaf
def _most_violated(items: IntArray, begin: int, unit: float, w: FloatArray) -> int:
    """Return the number of first items whose positions are too small by most; 0 if none are."""
    largest, n_first, excess, size = 0.0, 0, 0.0, 0.0
    for k in range(len(items) - 1):
        excess += unit * (begin + k) - w[items[k]]
        size += unit * (begin + k) + abs(w[items[k]])
        if excess > largest and excess > ROUNDING * (k + 1) * size:
            largest, n_first = excess, k + 1
    return n_first


@kernel
def multiply_orders(
    rows: IntArray,
    offsets: IntArray,
    delta: FloatArray,
    block: IntArray,
    d: FloatArray,
    out: FloatArray,
) -> None:
    """Multiply the Jacobians of some factors with a vector.

    In a block, ``<delta, z>`` is fixed: the Jacobian is the projection onto these directions.
    """
    longest = largest_arity(rows, offsets)
    products, squares = np.empty(longest), np.empty(longest)
    count = np.empty(longest, dtype=np.int64)
    for f in rows:
        lo, hi = offsets[f], offsets[f + 1]
        products[: hi - lo] = squares[: hi - lo] = 0.0
        count[: hi - lo] = 0
        for i in range(lo, hi):
            products[block[i]] += delta[i] * d[i]
            squares[block[i]] += delta[i] * delta[i]
            count[block[i]] += 1
        for i in range(lo, hi):
            k = block[i]
            # exactly zero for a single item, which cannot move
            out[i] = d[i] - delta[i] * products[k] / squares[k] if count[k] > 1 else 0.0
