"""Projection onto the rows and some cuts of the arborescence polytope, by its dual.

With sets of words ``S_k`` (cuts), and the arc from word h to word m "inside" a set that holds both,
solves

    minimise sum_e (x_e - y_e)^2 / (2 q_e)
    s.t.  x >= 0,  row m of x sums to 1 for every word m,  x inside S_k sums to |S_k| - 1 at most.

With multipliers ``sigma_k >= 0`` of the cuts, every row is a simplex projection of its own,

    x_e = max(0, y_e - q_e (tau_m + sum of sigma_k over the cuts that e is inside)),

and what is left is to maximise a concave function of sigma that is quadratic in pieces. Its
gradient is ``sum of x inside S_k - (|S_k| - 1)``; minus its Hessian, H, has as entry k, l the sum
over rows of the covariance, weighted by q over the row's support, of being inside S_k and inside
S_l. `lpsmap_factors_struct.arborescence_ascent` finds its maximum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_factors_struct.simplex_row import threshold

__all__ = [
    "EPSILON",
    "TINY",
    "TreeDual",
    "add_up",
    "cuts_of",
    "evaluate",
    "find_excess",
    "least_threshold",
    "list_cuts",
    "second_derivatives",
    "tree_dual",
]

EPSILON = 2.0**-52
BORDER = 1e-10
"""What an arc may lack that counts as on the support for H: it may join it right away."""
TINY = 1e-300
"""Less than any weight, and not 0."""
MARGIN = 0.1
"""How far below 0 arcs are looked at from the start."""


class TreeDual(NamedTuple):
    """A problem of up to ``n`` words, ``width`` arcs a row and ``most`` cuts, and its memory."""

    y: FloatArray
    """(n * width,) scores, by word, head (a word itself for the root) and label."""
    scores: FloatArray
    """(n * width,) room for a copy of them."""
    q: FloatArray
    """(n * width,) squares of the scales."""
    head: IntArray
    """(width,) head of each arc of a row."""
    x: FloatArray
    """(n * width,) the solution."""
    size: FloatArray
    """(1,) size of the numbers that x was found as the difference of."""
    tau: FloatArray
    """(n,) multipliers of the rows."""
    margin: FloatArray
    """(n,) of each row, how far below 0 arcs are looked at; -inf before any is."""
    arcs: IntArray
    """(n * width,) these arcs; others come to be looked at if the threshold falls so far."""
    n_arcs: IntArray
    """(n,) their number."""
    on: IntArray
    """(n * width,) for each row, the arcs of its support."""
    n_on: IntArray
    """(n,) their number."""
    member: FloatArray
    """(most, n) which words are in which cut: 1 or 0."""
    holding: FloatArray
    """(n, most) the same by word, written by `list_cuts`."""
    sigma: FloatArray
    """(most,) multipliers of the cuts."""
    gradient: FloatArray
    """(most,) excess of x inside each cut."""
    hessian: FloatArray
    """(most, most) H."""
    factor: FloatArray
    """(most, most) its Cholesky factor."""
    order: IntArray
    """(most,) the cuts that it is factorised on."""
    direction: FloatArray
    """(most,) in which the multipliers move."""
    base: FloatArray
    """(most,) multipliers where a line search started."""
    own: IntArray
    """(most,) the cuts that hold a word."""
    mass: FloatArray
    """(most,) of each of them, the sum of q inside it over the support of the word's row."""
    level: FloatArray
    rate: FloatArray
    """(n,) for the row of one word, numbers of each head."""
    block: FloatArray
    """(most, most) a row's part of H."""
    side: FloatArray
    """(most,) which of the cuts that divide a row one of its arcs is inside."""
    row: FloatArray
    weight: FloatArray
    near: FloatArray
    scale: FloatArray
    """(width,) for a row's threshold."""


@kernel
def tree_dual(n: int, width: int, most: int) -> TreeDual:
    """Return room for problems of up to so many words, arcs a row and cuts."""
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
    """Write by word which of the first `count` cuts hold it."""
    for word in range(n):
        for k in range(count):
            dual.holding[word, k] = dual.member[k, word]


@leaf
def cuts_of(word: int, holding: FloatArray, count: int, own: IntArray) -> int:
    """List the cuts that hold a word; return their number."""
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

    ``own[:n_own]`` are the cuts that hold the word. At `word` itself stands the arc from the root.
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
    """Return the threshold of a row's `support` alone, a lower bound of the row's.

    A good one if the support is that of scores or multipliers close by; -inf if it is empty.
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
    """Find x, its support and the gradient at ``sigma``; rows in no cut stay as they are.

    Unless all is to be found `anew`, rows that were looked at stay, too.
    """
    # Each field is read once: handing the tuple to a kernel costs a reference count per array.
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
            margin[word] = max(MARGIN, -2.0 * (guess + lowest))
            n_arcs[word] = list_arcs(y, q, begin, width, margin[word], arcs)
        candidates, first = np.uint64(n_arcs[word]), np.uint64(begin)
        for j in range(candidates):
            i = np.uint64(arcs[first + j])
            row[j], weight[j] = y[i] - q[i] * level[np.uint64(head[i - first])], q[i]
        tau[word] = threshold(row, weight, int(candidates), guess, near, scale)
        largest, level_of_row, last = size[0], tau[word], first
        border = BORDER + 64 * EPSILON * largest
        for j in range(candidates):  # without branches, which would often be guessed wrong
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
    """Write what the values inside each cut exceed it by, if rows sum to `total`."""
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
    """Write the sums of the values of a row's arcs from the words that each cut holds.

    ``own[:n_own]`` are the cuts that hold `word`, at which stands the arc from the root.
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
        for j in range(n_own):  # of the others, the support is all inside or all outside
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
    """Write for each two cuts the sum of q over the arcs inside both; the lower triangle."""
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
