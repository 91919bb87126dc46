"""The equations of a chain's problem on a forest: the levels of its trees.

An edge without slack has one potential on both its ends but for its score, so that the potentials
of a tree are its level and what is known. A node is a resistor from its tree of the edges before,
or the source, to its tree of the edges behind, or the ground, and as much flows into a tree as out
of it. Between two layers there are few trees: of twenty states five at most scales. Resistances are
degrees of variables, so that, unlike those of `lpsmap_factors_struct.flows.electric_network`, plain
elimination loses no digits.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray
from lpsmap_factors_struct.flows.forest import ForestChain

__all__ = ["centre_potentials", "refine_flows", "solve_levels", "write_flows"]

SINGULAR = 1e-9
"""Pivots below this are rounding: weights are at least 1, and pivots no differences of large ones.
"""

ONE = np.uint64(1)


@leaf
def solve_levels(chain: ForestChain, total: float) -> bool:
    """Find the levels by which as much flows into every tree as out of it, and `total` in all.

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
    """Write where the levels of each step's trees begin."""
    work, first = chain.work, 0
    for h in range(chain.length):
        work.first_level[h] = first
        first += work.n_trees[h]


@leaf
def _n_levels(chain: ForestChain) -> int:
    """Return how many levels there are."""
    work, last = chain.work, chain.length - 1
    return work.first_level[last] + work.n_trees[last]  # type: ignore[no-any-return]


@leaf
def _right_of_first(h: int, chain: ForestChain) -> int:
    """Return how many levels the equation of a step's first one has, of those that follow it.

    Those of its own step, and of the next one. Each further equation of the step has one less.
    """
    n_trees = chain.work.n_trees
    return n_trees[h] - 1 + (n_trees[h + 1] if h < chain.length - 1 else 0)  # type: ignore[no-any-return]


@leaf
def _stride(chain: ForestChain) -> np.uint64:
    """Return how much room each equation has: that of the longest one."""
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
    """Eliminate a level from the equations that follow; its pivot becomes the inverse."""
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
    """Write the equations of the levels: that of the source, and one a tree.

    The equations are symmetric. Each has its own level's number first, then those of the levels
    that follow; its right-hand side stands in the place of the level.
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
    """Write the levels, the last one first, in the place of eliminated right-hand sides."""
    x, level, p = chain.work.equations, chain.work.level, np.uint64(_n_levels(chain))
    row = p * stride
    for h in range(chain.length - 1, -1, -1):
        most = _right_of_first(h, chain) + 1
        for rest in range(most - chain.work.n_trees[h], most):
            p -= ONE
            row -= stride
            left, right = level[p], np.uint64(rest)
            for j in range(right):  # the one that was written last comes last, which waits least
                left -= x[row + (right - j)] * level[p + (right - j)]
            level[p] = left * x[row]


@leaf
def write_flows(chain: ForestChain) -> None:
    """Write potentials and marginals of the nodes, and the flows that follow from these."""
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
    """Measure the potentials of every layer from those of its widest node, and move the scores so.

    A number that all scores of a layer share matters to no marginal. Without this, potentials add
    up along a chain, and lose more digits the longer it is.
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
    """Write the flows between two layers: each leaf's edge takes what is left of its marginal."""
    forest, work, vertices = chain.forest, chain.work, np.uint64(2 * chain.n_states)
    rest, target, here = work.rest, work.target, np.uint64(t * chain.n_states)
    row = here + here
    for k in range(vertices):  # of both layers, which lie side by side
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
    """Solve the equations once more, for what rounding has left of them; returns how much that was.

    Marginals are differences of potentials, which can be much larger.
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
    """Solve eliminated equations for the right-hand side that stands in the place of the levels."""
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
