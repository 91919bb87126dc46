"""Projection onto the rows and some cuts of the arborescence polytope, by its dual.

With sets of words ``S_k`` (cuts), and the arc from word h to word m "inside" a set that holds both,
solves

    minimise sum_e (x_e - y_e)^2 / (2 q_e)
    s.t.  x >= 0,  row m of x sums to 1 for every word m,  x inside S_k sums to |S_k| - 1 at most.

With multipliers ``sigma_k >= 0`` of the cuts, every row is a simplex projection of its own,

    x_e = max(0, y_e - q_e (tau_m + sum of sigma_k over the cuts that e is inside)),

so that a concave and piecewise quadratic function of sigma remains to be maximised. Its gradient is
``sum of x inside S_k - (|S_k| - 1)``. Minus its Hessian is H. Entry (k, l) of H is a sum over rows
of covariances: those of the indicators of being inside S_k and inside S_l, weighted by q over the
row's support. `lpsmap_factors_struct.arborescence_polytope.ascent` finds the maximum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.arborescence_polytope.simplex_threshold import threshold

EPSILON = 2.0**-52
SUPPORT_TOLERANCE = 1e-10
"""An arc this close below 0 belongs to the support of H, since it may enter in the next step."""
TINY = 1e-300
"""A positive number below any weight, which avoids divisions by 0."""
INITIAL_MARGIN = 0.1
"""Margin below 0 within which arcs are candidates at first."""


class TreeDual(NamedTuple):
    """A problem of up to ``n`` words, ``width`` arcs a row and ``most`` cuts, and its workspace."""

    y: FloatArray
    """(n * width,) scores, by word, head (a word itself for the root) and label."""
    scores: FloatArray
    """(n * width,) a copy of the scores."""
    q: FloatArray
    """(n * width,) squares of the scales."""
    head: IntArray
    """(width,) head of each arc of a row."""
    x: FloatArray
    """(n * width,) the solution."""
    size: FloatArray
    """(1,) magnitude of the numbers of which x is the difference."""
    tau: FloatArray
    """(n,) multipliers of the rows."""
    margin: FloatArray
    """(n,) for each row, the margin below 0 within which arcs are candidates; -inf before that."""
    arcs: IntArray
    """(n * width,) the candidates. They are listed anew when a threshold falls below the margin."""
    n_arcs: IntArray
    """(n,) the number of candidates."""
    on: IntArray
    """(n * width,) for each row, the arcs of its support."""
    n_on: IntArray
    """(n,) the sizes of the supports."""
    member: FloatArray
    """(most, n) the words of each cut, as 1 or 0."""
    holding: FloatArray
    """(n, most) its transpose, written by `list_cuts`."""
    sigma: FloatArray
    """(most,) multipliers of the cuts."""
    gradient: FloatArray
    """(most,) excess of x inside each cut."""
    hessian: FloatArray
    """(most, most) H."""
    factor: FloatArray
    """(most, most) the Cholesky factor of H."""
    order: IntArray
    """(most,) the cuts in the order of the factor's rows."""
    direction: FloatArray
    """(most,) search direction of the multipliers."""
    base: FloatArray
    """(most,) multipliers at the start of a line search."""
    own: IntArray
    """(most,) the cuts that contain a word."""
    mass: FloatArray
    """(most,) for each of them, the sum of q inside it over the support of the word's row."""
    level: FloatArray
    rate: FloatArray
    """(n,) sums over cuts, by head, for the row of one word."""
    block: FloatArray
    """(most, most) contribution of a row to H."""
    side: FloatArray
    """(most,) for each cut that divides a row, whether one of the row's arcs is inside."""
    row: FloatArray
    weight: FloatArray
    near: FloatArray
    scale: FloatArray
    """(width,) workspace for the threshold of a row."""


@kernel
def tree_dual(n: int, width: int, most: int) -> TreeDual:
    """Return a workspace for problems of up to `n` words, `width` arcs a row and `most` cuts."""
    by_arc, listed = np.empty((4, n * width)), np.empty((2, n * width), dtype=np.int64)
    by_word, counted = np.empty((4, n)), np.empty((2, n), dtype=np.int64)
    by_cut, chosen = np.empty((6, most)), np.empty((2, most), dtype=np.int64)
    matrices, by_place = np.empty((3, most, most)), np.empty((4, width))
    return TreeDual(
        y=by_arc[0],
        scores=by_arc[1],
        q=by_arc[2],
        head=np.empty(width, dtype=np.int64),
        x=by_arc[3],
        size=np.empty(1),
        tau=by_word[0],
        margin=by_word[1],
        arcs=listed[0],
        n_arcs=counted[0],
        on=listed[1],
        n_on=counted[1],
        member=np.empty((most, n)),
        holding=np.empty((n, most)),
        sigma=by_cut[0],
        gradient=by_cut[1],
        hessian=matrices[0],
        factor=matrices[1],
        order=chosen[0],
        direction=by_cut[2],
        base=by_cut[3],
        own=chosen[1],
        mass=by_cut[4],
        level=by_word[2],
        rate=by_word[3],
        block=matrices[2],
        side=by_cut[5],
        row=by_place[0],
        weight=by_place[1],
        near=by_place[2],
        scale=by_place[3],
    )


@leaf
def list_cuts(dual: TreeDual, n: int, count: int) -> None:
    """Write for each word which of the first `count` cuts contain it."""
    for word in range(n):
        for k in range(count):
            dual.holding[word, k] = dual.member[k, word]


@leaf
def cuts_of(word: int, holding: FloatArray, count: int, own: IntArray) -> int:
    """List the cuts that contain a word; return their number."""
    n_own, cuts = np.uint64(0), holding[word]
    for k in range(np.uint64(count)):
        own[n_own] = k
        n_own += np.uint64(cuts[k] > 0.0)
    return int(n_own)


@leaf
def add_up(
    word: int,
    n: int,
    member: FloatArray,
    own: IntArray,
    n_own: int,
    values: FloatArray,
    total: FloatArray,
) -> None:
    """Write for each head the sum of the values of the cuts that its arc to `word` is inside.

    ``own[:n_own]`` are the cuts that contain the word. The entry of `word` itself belongs to the
    arc from the root.
    """
    total[:n] = 0.0
    for k in own[:n_own]:
        value, members = values[k], member[k]
        if value != 0.0:
            for head in range(np.uint64(n)):
                total[head] += value * members[head]
    total[word] = 0.0


@leaf
def list_arcs(
    y: FloatArray, q: FloatArray, begin: int, width: int, margin: float, arcs: IntArray
) -> int:
    """List the arcs of a row that are less than `margin` below 0; return their number."""
    first, last = np.uint64(begin), np.uint64(begin)
    for i in range(first, np.uint64(begin + width)):
        arcs[last] = i
        last += np.uint64(y[i] > -margin * q[i])
    return int(last - first)


@leaf
def least_threshold(
    begin: int,
    support: IntArray,
    y: FloatArray,
    q: FloatArray,
    head: IntArray,
    level: FloatArray,
) -> float:
    """Return the threshold of a row's `support` alone, a lower bound of the row's threshold.

    The bound is good if the support belongs to similar scores or multipliers. It is -inf if the
    support is empty.
    """
    if len(support) == 0:
        return -np.inf
    total, weight, first = -1.0, 0.0, np.uint64(begin)
    for arc in support:
        i = np.uint64(arc)
        total += y[i] - q[i] * level[np.uint64(head[i - first])]
        weight += q[i]
    return total / max(weight, TINY)


# -------------------------------------------------------------------- the dual function


@leaf
def evaluate(dual: TreeDual, n: int, width: int, count: int, anew: bool) -> None:
    """Find x, its support and the gradient at ``sigma``.

    Rows of words in no cut keep their values. So do rows that were evaluated before, unless `anew`.
    """
    # Each field is read once: passing the tuple to a kernel costs a reference count per array.
    y, q, x, tau, arcs, n_arcs = dual.y, dual.q, dual.x, dual.tau, dual.arcs, dual.n_arcs
    head, on, n_on, sigma, size = dual.head, dual.on, dual.n_on, dual.sigma, dual.size
    member, holding, own, level = dual.member, dual.holding, dual.own, dual.level
    row, weight = dual.row, dual.weight
    margin, near, scale = dual.margin, dual.near, dual.scale
    lowest = min(0.0, sigma[0]) if count > 0 else 0.0  # the others are not negative
    for word in range(n):
        if not anew and margin[word] > -np.inf:
            continue
        n_own, begin = cuts_of(word, holding, count, own), word * width
        if n_own == 0:
            continue
        add_up(word, n, member, own, n_own, sigma, level)
        guess = least_threshold(begin, on[begin : begin + n_on[word]], y, q, head, level)
        if not guess + lowest >= -margin[word]:
            margin[word] = max(INITIAL_MARGIN, -2.0 * (guess + lowest))
            n_arcs[word] = list_arcs(y, q, begin, width, margin[word], arcs)
        candidates, first = np.uint64(n_arcs[word]), np.uint64(begin)
        for j in range(candidates):
            i = np.uint64(arcs[first + j])
            row[j], weight[j] = y[i] - q[i] * level[np.uint64(head[i - first])], q[i]
        tau[word] = threshold(row, weight, n_arcs[word], guess, near, scale)
        largest, level_of_row, last = size[0], tau[word], first
        border = SUPPORT_TOLERANCE + 64 * EPSILON * largest
        for j in range(candidates):  # without branches, which would often be mispredicted
            i = np.uint64(arcs[first + j])
            value = row[j] - level_of_row * weight[j]
            x[i] = value if value > 0.0 else 0.0
            here, on[last] = value > -border, i
            last += np.uint64(here)
            both = abs(y[i]) if abs(y[i]) > abs(row[j]) else abs(row[j])
            largest = both if here & (both > largest) else largest
        n_on[word], size[0] = last - first, largest
    find_excess(dual, n, width, count, x, 1.0, dual.gradient)


@leaf
def find_excess(
    dual: TreeDual,
    n: int,
    width: int,
    count: int,
    values: FloatArray,
    total: float,
    excess: FloatArray,
) -> None:
    """Write the excess of the values inside each cut, for rows that sum to `total`."""
    on, n_on, head, member, holding = dual.on, dual.n_on, dual.head, dual.member, dual.holding
    own, inside = dual.own, dual.mass
    excess[:count] = total
    for word in range(n):
        n_own, begin = np.uint64(cuts_of(word, holding, count, own)), word * width
        if n_own == 0:
            continue
        support = on[begin : begin + n_on[word]]
        _add_inside(word, support, begin, values, head, member, own, n_own, inside)
        for j in range(n_own):
            excess[np.uint64(own[j])] += inside[j] - total


@leaf
def _add_inside(
    word: int,
    support: IntArray,
    begin: int,
    values: FloatArray,
    head: IntArray,
    member: FloatArray,
    own: IntArray,
    n_own: np.uint64,
    inside: FloatArray,
) -> None:
    """Write for each cut the sum of the values of a row's arcs from the words of the cut.

    ``own[:n_own]`` are the cuts that contain `word`. The arc from the root counts as outside.
    """
    first, itself = np.uint64(begin), np.uint64(word)
    for j in range(n_own):
        members, total = member[np.uint64(own[j])], 0.0
        for arc in support:
            i = np.uint64(arc)
            above = np.uint64(head[i - first])
            total += values[i] * members[above] if above != itself else 0.0
        inside[j] = total


@leaf
def second_derivatives(dual: TreeDual, n: int, width: int, count: int) -> None:
    """Find H on the support of x."""
    q, on, n_on, head, holding = dual.q, dual.on, dual.n_on, dual.head, dual.holding
    member, own, mass, hessian = dual.member, dual.own, dual.mass, dual.hessian
    block, side = dual.block, dual.side
    for k in range(count):
        hessian[k, :count] = 0.0
    for word in range(n):
        if n_on[word] < 2:
            continue
        n_own, begin = np.uint64(cuts_of(word, holding, count, own)), word * width
        support, weight, divided = on[begin : begin + n_on[word]], 0.0, np.uint64(0)
        for arc in support:
            weight += q[np.uint64(arc)]
        _add_inside(word, support, begin, q, head, member, own, n_own, mass)
        for j in range(n_own):  # other cuts have the whole support inside, or outside
            own[divided], mass[divided] = own[j], mass[j]
            divided += np.uint64((mass[j] > 0.0) & (mass[j] < weight))
        if divided > 0:
            _add_products(word, support, begin, q, head, holding, own[:divided], block, side)
            for j in range(divided):
                target, products, part = hessian[np.uint64(own[j])], block[j], mass[j] / weight
                for k in range(j + np.uint64(1)):
                    target[np.uint64(own[k])] += products[k] - part * mass[k]
    for k in range(count):
        for j in range(k):
            hessian[j, k] = hessian[k, j]


@leaf
def _add_products(
    word: int,
    support: IntArray,
    begin: int,
    q: FloatArray,
    head: IntArray,
    holding: FloatArray,
    cuts: IntArray,
    block: FloatArray,
    side: FloatArray,
) -> None:
    """Write for each pair of cuts the sum of q over the arcs inside both, as a lower triangle."""
    n_cuts, first = np.uint64(len(cuts)), np.uint64(begin)
    for j in range(n_cuts):
        block[j, :n_cuts] = 0.0
    for arc in support:
        i = np.uint64(arc)
        above = head[i - first]
        if above == word:
            continue
        sides = holding[above]
        for j in range(n_cuts):
            side[j] = sides[np.uint64(cuts[j])]
        for j in range(n_cuts):
            if side[j] > 0.0:
                target = block[j]
                for k in range(j + np.uint64(1)):
                    target[k] += q[i] * side[k]
