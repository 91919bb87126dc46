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
S_l. Semismooth Newton steps with a line search end on the right piece, on which they are exact (Qi
& Sun 1993). Where H is singular, the function is linear along its null space until an arc enters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import interrupted, kernel, leaf
from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.interrupts import stopped
from lpsmap_factors_struct.arrays import copy
from lpsmap_factors_struct.pivoted_cholesky import (
    DEPENDENT,
    factorise,
    solve_lower,
    solve_upper,
)
from lpsmap_factors_struct.simplex_row import threshold

__all__ = [
    "TINY",
    "TreeDual",
    "add_up",
    "cuts_of",
    "find_excess",
    "least_threshold",
    "list_cuts",
    "maximise",
    "second_derivatives",
    "tree_dual",
]

EPSILON = 2.0**-52
BORDER = 1e-10
"""What an arc may lack that counts as on the support for H: it may join it right away."""
GROWTH = 8.0
"""Factor between the scales that lead from scaled down scores to the scores; a power of 2."""
TINY = 1e-300
"""Less than any weight, and not 0."""
MARGIN = 0.1
"""How far below 0 arcs are looked at from the start."""
LARGEST = 1e300
"""Limit of what scores are scaled down by."""
MOST_STEPS = 100
"""Limit of Newton steps: ten usually do, and more are a sign of ever shorter ones."""
SHORT = 0.05
"""Part of a Newton step that is not worth another one: bends can lie where it starts."""
MOST_TRIALS = 60
"""Limit of points that a line search looks at."""


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

    A good one if the support is that of scores or multipliers close by; far below if it is empty.
    """
    total, weight, first = -1.0, 0.0, np.uint64(begin)
    for arc in support:
        i = np.uint64(arc)
        total += y[i] - q[i] * level[np.uint64(head[i - first])]
        weight += q[i]
    return total / max(weight, TINY)


# -------------------------------------------------------------------- the dual function


@leaf
def _evaluate(dual: TreeDual, n: int, width: int, count: int) -> None:
    """Find x, its support and the gradient at ``sigma``; rows in no cut stay as they are."""
    # Each field is read once: handing the tuple to a kernel costs a reference count per array.
    y, q, x, tau, arcs, n_arcs = dual.y, dual.q, dual.x, dual.tau, dual.arcs, dual.n_arcs
    head, on, n_on, sigma, size = dual.head, dual.on, dual.n_on, dual.sigma, dual.size
    member, holding, own, level = dual.member, dual.holding, dual.own, dual.level
    row, weight = dual.row, dual.weight
    margin, near, scale = dual.margin, dual.near, dual.scale
    lowest = min(0.0, sigma[0]) if count > 0 else 0.0  # the others are not negative
    for word in range(n):
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
        border, level_of_row, last = BORDER + 64 * EPSILON * size[0], tau[word], first
        for j in range(candidates):
            i = np.uint64(arcs[first + j])
            value = row[j] - level_of_row * weight[j]
            x[i] = max(0.0, value)
            if value > -border:
                on[last] = i
                last += np.uint64(1)
                size[0] = max(size[0], max(abs(y[i]), abs(row[j])))
        n_on[word] = last - first
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
    on, n_on, head, holding, inside = dual.on, dual.n_on, dual.head, dual.holding, dual.mass
    excess[:count] = total
    for word in range(n):
        begin, held = word * width, 0.0
        for k in range(np.uint64(count)):
            held += holding[word, k]
        if held == 0.0:
            continue
        support = on[begin : begin + n_on[word]]
        _add_inside(word, support, begin, values, head, holding, count, inside)
        for k in range(np.uint64(count)):
            excess[k] += holding[word, k] * (inside[k] - total)


@leaf
def _add_inside(
    word: int,
    support: IntArray,
    begin: int,
    values: FloatArray,
    head: IntArray,
    holding: FloatArray,
    count: int,
    inside: FloatArray,
) -> None:
    """Write for each cut the sum of the values of a row's arcs from the words that it holds."""
    inside[:count] = 0.0
    first, itself = np.uint64(begin), np.uint64(word)
    for arc in support:
        i = np.uint64(arc)
        above, value = np.uint64(head[i - first]), values[i]
        if above != itself:
            sides = holding[above]
            for k in range(np.uint64(count)):
                inside[k] += value * sides[k]


@leaf
def second_derivatives(dual: TreeDual, n: int, width: int, count: int) -> None:
    """Find H on the support of x."""
    q, on, n_on, head, holding = dual.q, dual.on, dual.n_on, dual.head, dual.holding
    own, mass, hessian, block, side = dual.own, dual.mass, dual.hessian, dual.block, dual.side
    for k in range(count):
        hessian[k, :count] = 0.0
    for word in range(n):
        if n_on[word] < 2:
            continue
        begin, weight, divided = word * width, 0.0, 0
        support = on[begin : begin + n_on[word]]
        for i in support:
            weight += q[i]
        _add_inside(word, support, begin, q, head, holding, count, mass)
        for k in range(count):  # of the others, the support is all inside or all outside
            own[divided], mass[divided] = k, mass[k]
            divided += holding[word, k] > 0.0 and 0.0 < mass[k] < weight
        if divided > 0:
            _add_products(word, support, begin, q, head, holding, own[:divided], block, side)
            for j in range(divided):
                target, part = hessian[own[j]], mass[j] / weight
                for k in range(j + 1):
                    target[own[k]] += block[j, k] - part * mass[k]
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
    n_cuts = np.uint64(len(cuts))
    for j in range(n_cuts):
        block[j, :n_cuts] = 0.0
    for i in support:
        above = head[i - begin]
        if above == word:
            continue
        for j in range(n_cuts):
            side[j] = holding[above, cuts[j]]
        for j in range(n_cuts):
            if side[j] > 0.0:
                target = block[j]
                for k in range(j + np.uint64(1)):
                    target[k] += q[i] * side[k]


# -------------------------------------------------------------------- its maximum


@leaf
def maximise(dual: TreeDual, n: int, width: int, count: int, free: int, tolerance: float) -> float:
    """Find the best multipliers of the cuts, from those in ``sigma``, and x with them.

    Parameters
    ----------
    free
        The first so many cuts, one at most, hold with equality: their multipliers have any sign.
    tolerance
        What x may exceed a cut by, before rounding is added.

    Returns
    -------
    float
        What x exceeds no cut by.
    """
    list_cuts(dual, n, count)
    excess, solved = _climb(dual, n, width, count, free, tolerance)
    if solved or stopped():
        return excess
    # On scores much larger than 1 the function is almost linear in pieces, and steps can be as
    # short as its bends. On scaled down scores they are not, and the multipliers follow as those
    # grow: a way of the solution from the middle of the polytope to its boundary.
    y, margin, sigma = dual.y[: n * width], dual.margin[:n], dual.sigma[:count]
    size = min(dual.size[0], LARGEST)
    levels = int(np.ceil(np.log(size) / np.log(GROWTH)))
    scale = GROWTH**levels
    y /= scale
    margin /= scale
    sigma /= scale
    dual.size[0] = 1.0
    for _ in range(levels):
        _climb(dual, n, width, count, free, tolerance)
        y *= GROWTH
        margin *= GROWTH
        sigma *= GROWTH
    excess, _ = _climb(dual, n, width, count, free, tolerance)
    return excess


@leaf
def _climb(
    dual: TreeDual, n: int, width: int, count: int, free: int, tolerance: float
) -> tuple[float, bool]:
    """Take Newton steps; return what x exceeds no cut by, and whether rounding explains it."""
    sigma, gradient, order = dual.sigma, dual.gradient, dual.order
    _evaluate(dual, n, width, count)
    excess = 0.0
    for _ in range(MOST_STEPS):
        terms = 16 + 2 * dual.n_on[:n].sum()  # that the x inside a cut is summed up from
        allowed = tolerance + terms * EPSILON * dual.size[0]
        size, excess = 0, 0.0
        for k in range(count):
            held = k < free or sigma[k] > 0.0
            excess = max(excess, abs(gradient[k]) if held else gradient[k])
            order[size] = k
            size += held or gradient[k] > allowed
        if not excess > allowed:
            return allowed, True
        second_derivatives(dual, n, width, count)
        flat, limit = _ascent(dual, count, size, free)
        if not _search(dual, n, width, count, flat, limit) or interrupted():
            break
    return excess, False


@leaf
def _ascent(dual: TreeDual, count: int, size: int, free: int) -> tuple[bool, float]:
    """Choose a direction over the cuts ``order[:size]``.

    Returns whether the function is linear along it, and how far no multiplier becomes negative.
    """
    sigma, direction, order = dual.sigma, dual.direction, dual.order
    while True:
        flat, limit, kept = _newton(dual, count, size), np.inf, 0
        for i in range(size):
            k = order[i]
            if k >= free and direction[k] < 0.0:
                limit = min(limit, sigma[k] / -direction[k])
                if sigma[k] == 0.0:
                    continue  # would become negative: stays where it is
            order[kept] = k
            kept += 1
        if limit > 0.0 or kept == 0:
            return flat, limit
        size = kept


@leaf
def _newton(dual: TreeDual, count: int, size: int) -> bool:
    """Write the Newton direction, or one from H's null space if the gradient has a part in it.

    Returns whether it is the latter.
    """
    direction, order, factor, gradient = dual.direction, dual.order, dual.factor, dual.gradient
    rank = factorise(dual.hessian, order, size, factor)
    direction[:count] = 0.0
    steepest = 0.0
    for i in range(rank):
        direction[order[i]] = gradient[order[i]]
        steepest = max(steepest, abs(gradient[order[i]]))
    solve_lower(factor, order, rank, direction)
    dependent, slope = -1, 0.1 * steepest
    for i in range(rank, size):
        rest = gradient[order[i]]
        for j in range(rank):
            rest -= factor[i, j] * direction[order[j]]
        if abs(rest) > abs(slope):
            dependent, slope = i, rest
    if dependent >= 0:
        sign = 1.0 if slope > 0.0 else -1.0
        for j in range(rank):
            direction[order[j]] = -sign * factor[dependent, j]
        direction[order[dependent]] = sign
    solve_upper(factor, order, rank, direction)
    return dependent >= 0


@leaf
def _search(dual: TreeDual, n: int, width: int, count: int, flat: bool, limit: float) -> bool:
    """Move along the direction, at most to `limit`, about to the maximum; return whether at all.

    The derivative along a line falls, linearly in pieces: Newton's method on it, within a bracket.
    """
    sigma, base, direction = dual.sigma, dual.base, dual.direction
    copy(sigma[:count], base)
    start = _slope(dual, count)
    if not start > 0.0:
        return False
    low, high = 0.0, np.inf
    step = _next_arc(dual, n, width, count, start) if flat else 1.0
    for _ in range(MOST_TRIALS):
        at = min(step, limit)
        for k in range(count):
            sigma[k] = base[k] + at * direction[k]
            if at == limit and abs(sigma[k]) <= 4 * EPSILON * base[k]:
                sigma[k] = 0.0
        _evaluate(dual, n, width, count)
        slope = _slope(dual, count)
        enough = at == limit or (at >= SHORT and not flat)
        if (slope >= 0.0 and enough) or abs(slope) <= 0.1 * start:
            return True
        if slope > 0.0:
            low = at
        else:
            high = at
        if interrupted():
            break
        curvature = _curvature(dual, n, width, count)
        if curvature > 0.0:
            step = at + slope / curvature
        elif slope > 0.0:
            step = at + _next_arc(dual, n, width, count, slope)
        if not low < step < high:
            step = 0.5 * (low + high) if high < np.inf else 2.0 * at
    return low > 0.0


@leaf
def _slope(dual: TreeDual, count: int) -> float:
    """Return the slope of the function along the direction."""
    slope = 0.0
    for k in range(count):
        slope += dual.direction[k] * dual.gradient[k]
    return slope


@leaf
def _curvature(dual: TreeDual, n: int, width: int, count: int) -> float:
    """Return minus the second derivative of the function along the direction."""
    q, head, on, n_on, member = dual.q, dual.head, dual.on, dual.n_on, dual.member
    own, direction, rate = dual.own, dual.direction, dual.rate
    curvature, magnitude = 0.0, 0.0
    for word in range(n):
        n_own, begin = cuts_of(word, dual.holding, count, own), word * width
        if n_own == 0:
            continue
        add_up(word, n, member, own, n_own, direction, rate)
        support = on[begin : begin + n_on[word]]
        mean, weight = 0.0, 0.0
        for i in support:
            mean += q[i] * rate[head[i - begin]]
            weight += q[i]
        mean /= max(weight, TINY)
        for i in support:
            one = rate[head[i - begin]]
            curvature += q[i] * (one - mean) * (one - mean)
            magnitude += q[i] * one * one
    return curvature if curvature > DEPENDENT * magnitude else 0.0


@leaf
def _next_arc(dual: TreeDual, n: int, width: int, count: int, slope: float) -> float:
    """Return how far along the direction the slope is zero, if it falls from the next arc on.

    On a linear piece the support of each row moves as one; the piece ends where the first arc joins
    a support.
    """
    y, q, head, x, on, n_on = dual.y, dual.q, dual.head, dual.x, dual.on, dual.n_on
    member, own, sigma, direction = dual.member, dual.own, dual.sigma, dual.direction
    rate, level = dual.rate, dual.level
    first, fall, negligible = np.inf, 1.0, 0.0
    for k in range(count):
        negligible = max(negligible, 1e-9 * abs(direction[k]))
    for word in range(n):
        n_own = cuts_of(word, dual.holding, count, own)
        if n_own == 0:
            continue
        add_up(word, n, member, own, n_own, direction, rate)
        add_up(word, n, member, own, n_own, sigma, level)
        begin, speed, weight = word * width, 0.0, 0.0
        for i in on[begin : begin + n_on[word]]:
            speed += q[i] * rate[head[i - begin]] * (x[i] > 0.0)
            weight += q[i] * (x[i] > 0.0)
        if weight == 0.0:  # its numbers are NaN
            continue
        speed /= weight
        for i in range(begin, begin + width):
            if x[i] > 0.0:
                continue
            above = head[i - begin]
            gain = speed - rate[above]
            if gain <= negligible:
                continue
            lacks = max(0.0, q[i] * (dual.tau[word] + level[above]) - y[i])
            if lacks < first * gain * q[i]:
                first = lacks / (gain * q[i])
                fall = gain * gain * q[i] * weight / (q[i] + weight)
    return first + slope / fall
