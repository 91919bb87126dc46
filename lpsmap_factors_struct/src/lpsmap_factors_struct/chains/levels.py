"""The equations of a chain's problem on a forest, whose unknowns are the levels of its trees.

The potentials at both ends of an edge without slack differ by its score, so that the potentials of
a tree are its level plus known offsets. A node is a resistor between two trees: that of the edges
before it, or the source, and that of the edges after it, or the ground. The inflow of a tree equals
its outflow. There are few trees between two layers: about five for twenty states at most score
scales. Resistances are degrees of variables, so that plain elimination is accurate.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray
from lpsmap_factors_struct.chains.forest import ForestChain

SINGULAR = 1e-9
"""Pivots below this are rounding errors. Weights are at least 1, and pivots do not suffer from
cancellation."""

ONE = np.uint64(1)


@leaf
def solve_levels(chain: ForestChain, total: float) -> bool:
    """Find the levels for which every tree is balanced, with a flow of `total` from the source.

    Returns false if the equations are singular.
    """
    work = chain.work
    _number_levels(chain)
    stride = _stride(chain)
    _write_equations(chain, total, stride)
    row = p = np.uint64(0)
    for h in range(chain.length):
        right = _right_of_first(h, chain)
        for rest in range(right, right - work.n_trees[h], -1):
            if not work.equations[row] > SINGULAR:
                return False
            _eliminate(work.equations, work.level, row, p, np.uint64(rest), stride)
            row += stride
            p += ONE
    _substitute(chain, stride)
    return True


@leaf
def _number_levels(chain: ForestChain) -> None:
    """Write the number of the first level of each step's trees."""
    work, first = chain.work, 0
    for h in range(chain.length):
        work.first_level[h] = first
        first += work.n_trees[h]


@leaf
def _n_levels(chain: ForestChain) -> int:
    """Return the number of levels."""
    work, last = chain.work, chain.length - 1
    return work.first_level[last] + work.n_trees[last]  # type: ignore[no-any-return]


@leaf
def _right_of_first(h: int, chain: ForestChain) -> int:
    """Return the number of off-diagonal levels in the equation of a step's first level.

    These are later levels of the same step, and those of the next step. Each further equation of
    the step has one less.
    """
    n_trees = chain.work.n_trees
    return n_trees[h] - 1 + (n_trees[h + 1] if h < chain.length - 1 else 0)  # type: ignore[no-any-return]


@leaf
def _stride(chain: ForestChain) -> np.uint64:
    """Return the length of the longest equation, which is the stride of all."""
    most = 0
    for h in range(chain.length):
        most = max(most, _right_of_first(h, chain))
    return np.uint64(most + 1)


@leaf
def _eliminate(
    x: FloatArray,
    level: FloatArray,
    row: np.uint64,
    p: np.uint64,
    rest: np.uint64,
    stride: np.uint64,
) -> None:
    """Eliminate a level from later equations; its pivot is replaced by the reciprocal."""
    inverse = 1.0 / x[row]
    x[row] = inverse
    below, last = row, rest + ONE
    for i in range(ONE, last):
        below += stride
        share = x[row + i] * inverse
        for j in range(i, last):
            x[below + (j - i)] -= share * x[row + j]
        level[p + i] -= share * level[p]


@leaf
def _write_equations(chain: ForestChain, total: float, stride: np.uint64) -> None:
    """Write the equations of the levels: one for the source, and one for each tree.

    The equations are symmetric. Each has the coefficient of its own level first, then those of
    later levels. Its right-hand side is stored in place of the level.
    """
    work, length, n = chain.work, chain.length, np.uint64(chain.n_states)
    x, level, tree, offset = work.equations, work.level, work.tree, work.offset
    n_levels = np.uint64(_n_levels(chain))
    x[: n_levels * stride] = 0.0
    level[:n_levels] = 0.0
    level[0] = -total
    for h in range(length):
        here = np.uint64(h) * n
        row, first, last = here + here, np.uint64(work.first_level[h]), h == length - 1
        following = first if last else np.uint64(work.first_level[h + 1])
        for y in range(here, here + np.uint64(work.n_used[h])):
            i = np.uint64(work.used[y])
            weight, known, p = work.weight[here + i], work.score[here + i], first
            if h > 0:
                p += np.uint64(tree[row + i - n])
                known -= offset[row + i - n]
            x[p * stride] += weight
            if not last:
                q = following + np.uint64(tree[row + i])
                known += offset[row + i]
                x[q * stride] += weight
                x[p * stride + (q - p)] -= weight
                level[q] -= weight * known
            level[p] += weight * known


@leaf
def _substitute(chain: ForestChain, stride: np.uint64) -> None:
    """Write the levels, the last one first, in place of the eliminated right-hand sides."""
    x, level, p = chain.work.equations, chain.work.level, np.uint64(_n_levels(chain))
    row = p * stride
    for h in range(chain.length - 1, -1, -1):
        most = _right_of_first(h, chain) + 1
        for rest in range(most - chain.work.n_trees[h], most):
            p -= ONE
            row -= stride
            left, right = level[p], np.uint64(rest)
            for j in range(right):  # the level written last is used last, which avoids stalls
                left -= x[row + (right - j)] * level[p + (right - j)]
            level[p] = left * x[row]


@leaf
def write_flows(chain: ForestChain) -> None:
    """Write the potentials and marginals of the nodes, and the flows determined by them."""
    work, length, n = chain.work, chain.length, np.uint64(chain.n_states)
    out, into, m, level = work.out, work.into, work.m, work.level
    tree, offset = work.tree, work.offset
    for t in range(length):
        here = np.uint64(t) * n
        behind = here + here
        first = np.uint64(work.first_level[t])
        following = np.uint64(work.first_level[t + 1]) if t < length - 1 else first
        for y in range(here, here + np.uint64(work.n_used[t])):
            i = np.uint64(work.used[y])
            k, w = here + i, behind + i
            v = w - n if t > 0 else k
            into[k] = level[first + np.uint64(tree[v])] + offset[v] if t > 0 else level[first]
            ends = t == length - 1
            out[k] = 0.0 if ends else level[following + np.uint64(tree[w])] + offset[w]
            m[k] = work.weight[k] * (work.score[k] + out[k] - into[k])
    for t in range(length - 1):
        _write_flows_between(t, chain)


@leaf
def centre_potentials(chain: ForestChain) -> None:
    """Subtract the potential of each layer's largest marginal, and shift the scores accordingly.

    A shift of all scores of a layer does not affect the marginals. Otherwise potentials accumulate
    along a chain, and lose more precision the longer it is.
    """
    work, n, following = chain.work, np.uint64(chain.n_states), 0.0
    for back in range(chain.length):
        t = chain.length - 1 - back
        here, widest, level = np.uint64(t) * n, -np.inf, 0.0
        for y in range(here, here + np.uint64(work.n_used[t])):
            k = here + np.uint64(work.used[y])
            level = work.into[k] if work.m[k] > widest else level
            widest = max(widest, work.m[k])
            work.out[k] -= following
        for y in range(here, here + np.uint64(work.n_used[t])):
            work.into[here + np.uint64(work.used[y])] -= level
        for node in range(here, here + n):
            work.score[node] += following - level
        following = level
    work.level[0] = 0.0


@leaf
def _write_flows_between(t: int, chain: ForestChain) -> None:
    """Write the flows between two layers: the edge of a leaf carries the rest of its marginal."""
    forest, work, vertices = chain.forest, chain.work, np.uint64(2 * chain.n_states)
    rest, target, here = work.rest, work.target, np.uint64(t * chain.n_states)
    row = here + here
    for k in range(vertices):  # both layers, which are adjacent in memory
        rest[k] = work.m[here + np.uint64(k)]
    for y in range(row, row + np.uint64(forest.n_edges[t])):
        x = work.order[y]
        edge = row + np.uint64(x if x >= 0 else -x - 1)
        i, j = np.uint64(forest.begin[edge]), np.uint64(forest.end[edge])
        v, other = (i, j) if x >= 0 else (j, i)
        target[edge] = rest[v]
        rest[other] -= rest[v]


@leaf
def refine_flows(chain: ForestChain, total: float) -> float:
    """Solve the equations once more for their residuals; returns the largest residual.

    Marginals are differences of potentials, which can be much larger, so that rounding matters.
    """
    work, length, n = chain.work, chain.length, chain.n_states
    level, m, left = work.level, work.m, 0.0
    for p in range(_n_levels(chain)):
        level[p] = 0.0
    level[0] = -total
    for t in range(length):
        before, first = (t - 1) * 2 * n + n, work.first_level[t]
        for y in range(t * n, t * n + work.n_used[t]):
            i = work.used[y]
            level[first + work.tree[before + i] if t > 0 else 0] += m[t * n + i]
            if t < length - 1:
                level[work.first_level[t + 1] + work.tree[before + n + i]] -= m[t * n + i]
    for p in range(_n_levels(chain)):
        left = max(left, abs(level[p]))
    _solve_again(chain)
    for t in range(length):
        before, first = (t - 1) * 2 * n + n, work.first_level[t]
        for y in range(t * n, t * n + work.n_used[t]):
            i = work.used[y]
            change = -level[first + work.tree[before + i] if t > 0 else 0]
            if t < length - 1:
                change += level[work.first_level[t + 1] + work.tree[before + n + i]]
            m[t * n + i] += work.weight[t * n + i] * change
    for t in range(length - 1):
        _write_flows_between(t, chain)
    return left


@leaf
def _solve_again(chain: ForestChain) -> None:
    """Solve eliminated equations for the right-hand side stored in place of the levels."""
    x, level, stride = chain.work.equations, chain.work.level, _stride(chain)
    row = p = np.uint64(0)
    for h in range(chain.length):
        right = _right_of_first(h, chain)
        for rest in range(right, right - chain.work.n_trees[h], -1):
            share = level[p] * x[row]
            for j in range(ONE, np.uint64(rest) + ONE):
                level[p + j] -= share * x[row + j]
            row += stride
            p += ONE
    _substitute(chain, stride)
