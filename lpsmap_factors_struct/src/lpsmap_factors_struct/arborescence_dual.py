"""Projection onto the rows and some cuts of the arborescence polytope, by its dual.

For sets of words ``S_k`` (cuts), with arc ``e`` from word h to word m "inside" a set that holds
both, solves

    minimise sum_e (x_e - y_e)^2 / (2 q_e)
    s.t.  x >= 0,  sum of row m of x = 1 for each word m,  sum of x inside S_k <= |S_k| - 1.

With multipliers ``sigma_k >= 0`` of the cuts, each row is a simplex projection of its own,

    x_e = max(0, y_e - q_e (tau_m + sum of sigma_k over the S_k that e is inside)),

and what is left is to maximise a concave function of ``sigma`` that is piecewise quadratic, with
gradient ``g_k = sum of x inside S_k - (|S_k| - 1)`` and, within a piece, Hessian ``-H``: ``H_kl``
is the sum over rows of the covariance, weighted by q over the row's support, of being inside S_k and
inside S_l. Semismooth Newton steps with a line search end on the right piece, where they are exact
(Qi & Sun 1993). Where H is singular, steps go along its null space, on which the function is linear
until some arc enters: for scores so large that all x are 0 or 1 this is what Edmonds' (1967)
algorithm does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core.compile import kernel

__all__ = ["TreeDual", "evaluate", "factorise", "maximise", "solve", "spread", "threshold"]
__all__ += ["tree_dual"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FlagArray = npt.NDArray[np.int8]

EPSILON = 2.0**-52
DEPENDENT = 1e-10
"""A cut whose part of H that others do not explain is relatively smaller depends on them."""
BORDER = 1e-10
"""What an arc may lack that counts as about to join the support."""
GROWTH = 8.0
MOST_STEPS = 30
"""Limit of Newton steps: far more than were ever seen to be needed."""
MOST_TRIALS = 60
"""Limit of points that a line search looks at."""


class TreeDual(NamedTuple):
    """A problem of up to ``n`` words, ``width`` arcs a row and ``most`` cuts, and its memory."""

    y: FloatArray
    """(n * width,) scores, in packed layout."""
    q: FloatArray
    """(n * width,) squares of the scales."""
    x: FloatArray
    """(n * width,) the solution; a negative number is a zero, and what it lacks to become more."""
    size: FloatArray
    """(1,) the size of the numbers that x was found as the difference of."""
    tau: FloatArray
    """(n,) multipliers of the rows."""
    member: FlagArray
    """(most, n) flags: which words are in which cut."""
    sigma: FloatArray
    """(most,) multipliers of the cuts."""
    gradient: FloatArray
    """(most,) excess of x inside each cut."""
    hessian: FloatArray
    """(most, most) H."""
    factor: FloatArray
    """(most, most) its Cholesky factor, rows in the order of the pivots."""
    order: IntArray
    """(most,) the cuts of the working set, those that are pivots first."""
    direction: FloatArray
    """(most,) in which the multipliers move."""
    base: FloatArray
    """(most,) multipliers that a line search starts from."""
    shift: FloatArray
    """(n * n,) sum of the multipliers of the cuts that an arc is inside."""
    rate: FloatArray
    """(n * n,) sum of their directions."""
    row: FloatArray
    """(width,) scores of a row less its shifts."""
    near: FloatArray
    scale: FloatArray
    """(width,) those above a lower bound of their threshold, and their q."""
    own: IntArray
    """(most,) the cuts that hold a word."""
    mass: FloatArray
    """(most,) for each cut, the sum of q inside it over the support of a row."""
    words: IntArray
    """(n,) the words of a cut."""


@kernel
def tree_dual(n: int, width: int, most: int) -> TreeDual:
    """Return room for problems of up to so many words, arcs a row and cuts."""
    return TreeDual(
        y=np.empty(n * width),
        q=np.empty(n * width),
        x=np.empty(n * width),
        size=np.ones(1),
        tau=np.empty(n),
        member=np.empty((most, n), dtype=np.int8),
        sigma=np.empty(most),
        gradient=np.empty(most),
        hessian=np.empty((most, most)),
        factor=np.empty((most, most)),
        order=np.empty(most, dtype=np.int64),
        direction=np.empty(most),
        base=np.empty(most),
        shift=np.empty(n * n),
        rate=np.empty(n * n),
        row=np.empty(width),
        near=np.empty(width),
        scale=np.empty(width),
        own=np.empty(most, dtype=np.int64),
        mass=np.empty(most),
        words=np.empty(n, dtype=np.int64),
    )


# -------------------------------------------------------------------- rows


@kernel
def threshold(
    y: FloatArray, q: FloatArray, width: int, near: FloatArray, scale: FloatArray
) -> float:
    """Return tau with ``sum_i max(0, y_i - tau q_i) = 1``.

    Newton's method on a convex function (Michelot 1986): from the best of single slots' thresholds,
    which is a lower bound, the slots above the threshold only ever become fewer. `near` and `scale`
    are working memory.
    """
    tau = -np.inf
    for i in range(width):
        tau = max(tau, (y[i] - 1.0) / q[i])
    tau -= 4 * EPSILON * abs(tau)
    count, total, weight = 0, 0.0, 0.0
    for i in range(width):
        value = y[i] - tau * q[i]
        near[count], scale[count] = value, q[i]
        above = value > 0.0
        count += above
        total += max(value, 0.0)
        weight += q[i] * above
    step = (total - 1.0) / weight
    while True:
        before, count, total, weight = count, 0, 0.0, 0.0
        for i in range(before):
            value, w = near[i], scale[i]
            near[count], scale[count] = value, w
            above = value > step * w
            count += above
            total += value * above
            weight += w * above
        if count == before or count == 0:
            return tau + step
        step = (total - 1.0) / weight


@kernel
def spread(
    member: FlagArray, count: int, n: int, weights: FloatArray, words: IntArray, out: FloatArray
) -> None:
    """Write for every arc, in packed layout, the sum of the weights of the cuts it is inside."""
    out[: n * n] = 0.0
    for k in range(count):
        if weights[k] == 0.0:
            continue
        size = 0
        for word in range(n):
            words[size] = word
            size += member[k, word]
        for i in range(size):
            for j in range(size):
                out[words[i] * n + words[j]] += weights[k]
    for word in range(n):  # the root is in no cut
        out[word * n + word] = 0.0


# -------------------------------------------------------------------- the dual function


@kernel
def evaluate(dual: TreeDual, n: int, n_labels: int, count: int) -> None:
    """Find x, the gradient and H for the multipliers ``sigma``; rows in no cut stay as they are."""
    y, q, x, tau = dual.y, dual.q, dual.x, dual.tau
    member, shift, row = dual.member, dual.shift, dual.row
    spread(member, count, n, dual.sigma, dual.words, shift)
    width, size = n * n_labels, 1.0
    for word in range(n):
        begin, covered = word * width, False
        for k in range(count):
            covered |= member[k, word] != 0
        if not covered:
            continue
        for head in range(n):
            for i in range(head * n_labels, (head + 1) * n_labels):
                row[i] = y[begin + i] - q[begin + i] * shift[word * n + head]
        tau[word] = threshold(row, q[begin : begin + width], width, dual.near, dual.scale)
        for i in range(width):
            x[begin + i] = row[i] - q[begin + i] * tau[word]
            if x[begin + i] > 0.0:
                size = max(size, max(abs(y[begin + i]), abs(row[i])))
    dual.size[0] = size
    differentiate(dual, n, n_labels, count, BORDER + 64 * EPSILON * size)


@kernel
def differentiate(dual: TreeDual, n: int, n_labels: int, count: int, border: float) -> None:
    """Find the gradient at x, and H on the support of x and arcs that lack less than `border`."""
    q, x, member, own, mass = dual.q, dual.x, dual.member, dual.own, dual.mass
    gradient, hessian = dual.gradient, dual.hessian
    for k in range(count):
        gradient[k] = 1.0
        hessian[k, :count] = 0.0
        for word in range(n):
            gradient[k] -= member[k, word]
    for word in range(n):
        n_own = 0
        for k in range(count):
            own[n_own] = k
            n_own += member[k, word]
        if n_own == 0:
            continue
        mass[:n_own] = 0.0
        weight = 0.0
        for head in range(n):
            for i in range((word * n + head) * n_labels, (word * n + head + 1) * n_labels):
                if x[i] <= -border:
                    continue
                weight += q[i]
                if head == word:
                    continue
                for j in range(n_own):
                    if member[own[j], head]:
                        gradient[own[j]] += max(0.0, x[i])
                        mass[j] += q[i]
        n_divided = 0  # of the others' cuts, the row is all inside or all outside
        for j in range(n_own):
            if 0.0 < mass[j] < weight:
                own[n_divided], mass[n_divided] = own[j], mass[j]
                n_divided += 1
        if n_divided > 0:
            _add_covariance(
                word, n, n_labels, q, x, border, member, n_divided, own, mass, weight, hessian
            )
    for k in range(count):
        for j in range(k):
            hessian[j, k] = hessian[k, j]


@kernel
def _add_covariance(
    word: int,
    n: int,
    n_labels: int,
    q: FloatArray,
    x: FloatArray,
    border: float,
    member: FlagArray,
    n_own: int,
    own: IntArray,
    mass: FloatArray,
    weight: float,
    hessian: FloatArray,
) -> None:
    """Add a row's part of H, of the cuts that divide the row's support."""
    for head in range(n):
        if head == word:
            continue
        for i in range((word * n + head) * n_labels, (word * n + head + 1) * n_labels):
            if x[i] <= -border:
                continue
            for j in range(n_own):
                if member[own[j], head]:
                    for k in range(j + 1):
                        hessian[own[j], own[k]] += q[i] * member[own[k], head]
    for j in range(n_own):
        for k in range(j + 1):
            hessian[own[j], own[k]] -= mass[j] * mass[k] / weight


# -------------------------------------------------------------------- linear algebra


@kernel
def factorise(hessian: FloatArray, order: IntArray, size: int, factor: FloatArray) -> int:
    """Factorise H on the cuts ``order[:size]`` as ``L L^T``, the best determined cuts first.

    Reorders them and returns the rank. Row i of the factor is the i-th cut's; cuts beyond the rank
    depend on those before.
    """
    for i in range(size):
        factor[i, i] = hessian[order[i], order[i]]
    for rank in range(size):
        pivot, most = -1, DEPENDENT
        for i in range(rank, size):
            if factor[i, i] > most * hessian[order[i], order[i]]:
                pivot, most = i, factor[i, i] / hessian[order[i], order[i]]
        if pivot < 0:
            return rank
        order[rank], order[pivot] = order[pivot], order[rank]
        for j in range(rank):
            factor[rank, j], factor[pivot, j] = factor[pivot, j], factor[rank, j]
        root = np.sqrt(factor[pivot, pivot])
        factor[pivot, pivot] = factor[rank, rank]
        factor[rank, rank] = root
        for i in range(rank + 1, size):
            entry = hessian[order[i], order[rank]]
            for j in range(rank):
                entry -= factor[i, j] * factor[rank, j]
            factor[i, rank] = entry / root
            factor[i, i] -= factor[i, rank] * factor[i, rank]
    return size


@kernel
def solve(factor: FloatArray, order: IntArray, rank: int, values: FloatArray) -> None:
    """Overwrite the values of the cuts ``order[:rank]`` with the solution of ``H x = values``."""
    _solve_lower(factor, order, rank, values)
    _solve_upper(factor, order, rank, values)


@kernel
def _solve_lower(factor: FloatArray, order: IntArray, rank: int, values: FloatArray) -> None:
    for i in range(rank):
        value = values[order[i]]
        for j in range(i):
            value -= factor[i, j] * values[order[j]]
        values[order[i]] = value / factor[i, i]


@kernel
def _solve_upper(factor: FloatArray, order: IntArray, rank: int, values: FloatArray) -> None:
    for i in range(rank - 1, -1, -1):
        value = values[order[i]]
        for j in range(i + 1, rank):
            value -= factor[j, i] * values[order[j]]
        values[order[i]] = value / factor[i, i]


# -------------------------------------------------------------------- the maximum


@kernel
def maximise(
    dual: TreeDual, n: int, n_labels: int, count: int, free: int, tolerance: float
) -> float:
    """Find the best multipliers of the cuts, from those in ``sigma``, and x with them.

    Parameters
    ----------
    free
        The first so many cuts hold with equality: their multipliers may be negative.
    tolerance
        What x may exceed a cut by, before rounding is added.

    Returns
    -------
    float
        What x exceeds no cut by.
    """
    worst, allowed, solved = _climb(dual, n, n_labels, count, free, tolerance)
    if solved:
        return allowed
    # On scores much larger than 1 the function is nearly piecewise linear, and steps can become as
    # short as its bends. Of scaled down scores it is not; the multipliers follow as they grow.
    y, sigma = dual.y, dual.sigma
    grown, scale = n * n * n_labels, GROWTH ** np.ceil(np.log(dual.size[0]) / np.log(GROWTH))
    y[:grown] /= scale
    sigma[:count] /= scale
    while True:
        worst, allowed, solved = _climb(dual, n, n_labels, count, free, tolerance)
        if scale <= 1.0:
            return max(allowed, worst)
        scale /= GROWTH
        y[:grown] *= GROWTH
        sigma[:count] *= GROWTH


@kernel
def _climb(
    dual: TreeDual, n: int, n_labels: int, count: int, free: int, tolerance: float
) -> tuple[float, float, bool]:
    """Take steps until the cuts hold; return the worst violation, what is allowed, and if so."""
    evaluate(dual, n, n_labels, count)
    worst, allowed = 0.0, 0.0
    for _ in range(MOST_STEPS):
        allowed = tolerance + 16 * EPSILON * dual.size[0]
        working, worst = 0, 0.0
        for k in range(count):
            held = k < free or dual.sigma[k] > 0.0
            worst = max(worst, abs(dual.gradient[k]) if held else dual.gradient[k])
            dual.order[working] = k
            working += held or dual.gradient[k] > allowed
        if not worst > allowed:
            return worst, allowed, True
        flat, limit = _ascent(dual, count, working, free)
        if not _search(dual, n, n_labels, count, flat, limit):
            break
    return worst, allowed, False


@kernel
def _ascent(dual: TreeDual, count: int, size: int, free: int) -> tuple[bool, float]:
    """Choose a direction over the first `size` cuts of ``order``.

    Returns whether the function is linear along it, and how far no multiplier becomes negative.
    """
    sigma, direction, order = dual.sigma, dual.direction, dual.order
    while True:
        flat = _newton(dual, count, size)
        limit, blocking = np.inf, -1
        for i in range(size):
            k = order[i]
            if k >= free and direction[k] < 0.0 and sigma[k] < -limit * direction[k]:
                limit, blocking = sigma[k] / -direction[k], i
        if limit > 0.0:
            return flat, limit
        size -= 1  # at zero, and would become negative: stays there
        order[blocking] = order[size]


@kernel
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
    _solve_lower(factor, order, rank, direction)
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
    _solve_upper(factor, order, rank, direction)
    return dependent >= 0


@kernel
def _search(dual: TreeDual, n: int, n_labels: int, count: int, flat: bool, limit: float) -> bool:
    """Move along the direction, at most to `limit`, about to the maximum; return whether at all.

    The derivative along a line falls piecewise linearly: Newton's method on it, within a bracket.
    """
    sigma, base, direction = dual.sigma, dual.base, dual.direction
    base[:count] = sigma[:count]
    start, curvature = _along(dual, count)
    if not start > 0.0:
        return False
    low, high = 0.0, np.inf
    step = _next_arc(dual, n, n_labels, count, start) if flat else 1.0
    for _ in range(MOST_TRIALS):
        at = min(step, limit)
        for k in range(count):
            sigma[k] = base[k] + at * direction[k]
            if at == limit and abs(sigma[k]) <= 4 * EPSILON * base[k]:
                sigma[k] = 0.0
        evaluate(dual, n, n_labels, count)
        slope, curvature = _along(dual, count)
        if slope >= 0.0 and (at == limit or not flat) or abs(slope) <= 0.1 * start:
            return True
        if slope > 0.0:
            low = at
        else:
            high = at
        if curvature > 0.0:
            step = at + slope / curvature
        elif slope > 0.0:
            step = at + _next_arc(dual, n, n_labels, count, slope)
        if not low < step < high:
            step = 0.5 * (low + high) if high < np.inf else 2.0 * at
    return low > 0.0


@kernel
def _along(dual: TreeDual, count: int) -> tuple[float, float]:
    """Return the slope of the function along the direction, and minus its second derivative."""
    direction, gradient, hessian = dual.direction, dual.gradient, dual.hessian
    slope, curvature, magnitude = 0.0, 0.0, 0.0
    for k in range(count):
        slope += direction[k] * gradient[k]
        for j in range(count):
            term = direction[k] * hessian[k, j] * direction[j]
            curvature += term
            magnitude += abs(term)
    return slope, curvature if curvature > DEPENDENT * magnitude else 0.0


@kernel
def _next_arc(dual: TreeDual, n: int, n_labels: int, count: int, slope: float) -> float:
    """Return how far along the direction the slope is zero, if it falls from the next arc on.

    On a linear piece the support of each row moves as one; the piece ends where the first arc joins
    a support.
    """
    q, x, rate = dual.q, dual.x, dual.rate
    spread(dual.member, count, n, dual.direction, dual.words, rate)
    first, fall = np.inf, 1.0
    negligible = 1e-9 * np.abs(dual.direction[:count]).max()
    for word in range(n):
        speed, weight = 0.0, 0.0
        for head in range(n):
            for i in range((word * n + head) * n_labels, (word * n + head + 1) * n_labels):
                if x[i] > 0.0:
                    speed += q[i] * rate[word * n + head]
                    weight += q[i]
        speed /= weight
        for head in range(n):
            gain = speed - rate[word * n + head]
            if gain <= negligible:
                continue
            for i in range((word * n + head) * n_labels, (word * n + head + 1) * n_labels):
                if x[i] <= 0.0 and -x[i] < first * gain * q[i]:
                    first = -x[i] / (gain * q[i])
                    fall = gain * gain * q[i] * weight / (q[i] + weight)
    return first + slope / fall
