"""The equations of a chain's problem on a forest: the levels of its trees.

An edge without slack has one potential on both its ends but for its score, so that the potentials
of a tree are its level and what is known. A node is a resistor from its tree of the edges before,
or the source, to its tree of the edges behind, or the ground, and as much flows into a tree as out
of it. Between two layers there are few trees: of twenty states five at most scales. Resistances are
degrees of variables, so that, unlike those of `lpsmap_core.local.flows.network`, plain elimination
loses no digits.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.kernels.arrays import FloatArray
from lpsmap_core.kernels.compile import leaf
from lpsmap_core.local.flows.forest import ForestChain

__all__ = ["refine_flows", "solve_levels", "write_flows"]

SINGULAR = 1e-9
"""Pivots below this are rounding: weights are at least 1, and pivots no differences of large ones.
"""

ONE = np.uint64(1)


@leaf
def solve_levels(chain: ForestChain, total: float) -> bool:
    """Find the levels by which as much flows into every tree as out of it, and `total` in all.

    Returns false if the equations are singular.
    """
    room, length = chain.room, chain.length
    _number_levels(chain)
    _write_equations(chain, total)
    row = np.uint64(0)
    for h in range(length):
        k, width, behind = _shape(h, chain)
        after = row + k * width
        for p in range(k):
            if not room.equations[row + p] > SINGULAR:
                return False
            _eliminate(room.equations, row, np.uint64(p), k, width, after, behind)
            row += width
    _substitute_all(chain, row)
    return True


@leaf
def _number_levels(chain: ForestChain) -> None:
    """Write where the levels of each step's trees begin."""
    room, first = chain.room, 0
    for h in range(chain.length):
        room.first_level[h] = first
        first += room.n_trees[h]


@leaf
def _shape(h: int, chain: ForestChain) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return how many equations a step has, how wide they are, and how wide those that follow are.

    An equation has a number for each tree of the step, for each tree of the next step, and one for
    its right-hand side. The first k numbers of the first k equations are symmetric: only those from
    the diagonal on are used.
    """
    n_trees, length = chain.room.n_trees, chain.length
    k = np.uint64(n_trees[h])
    ahead = np.uint64(n_trees[h + 1]) if h < length - 1 else np.uint64(0)
    behind = np.uint64(n_trees[h + 2]) if h < length - 2 else np.uint64(0)
    return k, k + ahead + ONE, ahead + behind + ONE


@leaf
def _eliminate(
    x: FloatArray,
    row: np.uint64,
    p: np.uint64,
    k: np.uint64,
    width: np.uint64,
    after: np.uint64,
    behind: np.uint64,
) -> None:
    """Eliminate the level of an equation from those that follow; its pivot becomes the inverse."""
    inverse = 1.0 / x[row + p]
    x[row + p] = inverse
    other = row
    for i in range(p + ONE, k):
        other += width
        share = x[row + i] * inverse
        if share != 0.0:
            for j in range(i, width):
                x[other + j] -= share * x[row + j]
    for i in range(k, width - ONE):
        share, other = x[row + i] * inverse, after + (i - k) * behind
        if share != 0.0:
            for j in range(i, width - ONE):
                x[other + j - k] -= share * x[row + j]
            x[other + behind - ONE] -= share * x[row + width - ONE]


@leaf
def _substitute(
    x: FloatArray, level: FloatArray, row: np.uint64, p: np.uint64, width: np.uint64, at: np.uint64
) -> None:
    """Write a level, from those that follow."""
    rest, here = x[row + width - ONE], at - p
    for j in range(p + ONE, width - ONE):
        rest -= x[row + j] * level[here + j]
    level[at] = rest * x[row + p]


@leaf
def _write_equations(chain: ForestChain, total: float) -> None:
    """Write the equations of the levels: that of the source, and one a tree."""
    room, length, n = chain.room, chain.length, chain.n_states
    x, tree, offset = room.equations, room.tree, room.offset
    k, width, _ = _shape(0, chain)
    for j in range(k * width):
        x[j] = 0.0
    x[width - ONE], row = -total, np.uint64(0)
    for h in range(length):
        k, width, behind = _shape(h, chain)
        after, last = row + k * width, h == length - 1
        if not last:
            for j in range(after, after + (width - ONE - k) * behind):
                x[j] = 0.0
        into = (h - 1) * 2 * n + n
        for y in range(h * n, h * n + room.n_used[h]):
            i = room.used[y]
            weight, known = room.weight[h * n + i], room.score[h * n + i]
            p = np.uint64(0)
            if h > 0:
                p = np.uint64(tree[into + i])
                known -= offset[into + i]
            here = row + p * width
            x[here + p] += weight
            if not last:
                q = np.uint64(tree[into + n + i])
                there = after + q * behind
                known += offset[into + n + i]
                x[there + q] += weight
                x[here + k + q] -= weight
                x[there + behind - ONE] -= weight * known
            x[here + width - ONE] += weight * known
        row = after


@leaf
def write_flows(chain: ForestChain) -> None:
    """Write potentials and marginals of the nodes, and the flows that follow from these."""
    room, length, n = chain.room, chain.length, np.uint64(chain.n_states)
    out, into, m, level = room.out, room.into, room.m, room.level
    tree, offset = room.tree, room.offset
    for t in range(length):
        here = np.uint64(t) * n
        behind = here + here
        first = np.uint64(room.first_level[t])
        following = np.uint64(room.first_level[t + 1]) if t < length - 1 else first
        for y in range(here, here + np.uint64(room.n_used[t])):
            i = np.uint64(room.used[y])
            k, v, w = here + i, behind + i - n, behind + i
            into[k] = level[first + np.uint64(tree[v])] + offset[v] if t > 0 else level[first]
            ends = t == length - 1
            out[k] = 0.0 if ends else level[following + np.uint64(tree[w])] + offset[w]
            m[k] = room.weight[k] * (room.score[k] + out[k] - into[k])
    for t in range(length - 1):
        _write_flows_between(t, chain)


@leaf
def _write_flows_between(t: int, chain: ForestChain) -> None:
    """Write the flows between two layers: each leaf's edge takes what is left of its marginal."""
    forest, room, vertices = chain.forest, chain.room, np.uint64(2 * chain.n_states)
    rest, target, here = room.rest, room.target, np.uint64(t * chain.n_states)
    row = here + here
    for k in range(vertices):  # of both layers, which lie side by side
        rest[k] = room.m[here + np.uint64(k)]
    for y in range(row, row + np.uint64(forest.n_edges[t])):
        x = room.order[y]
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
    room, length, n = chain.room, chain.length, chain.n_states
    level, m, left = room.level, room.m, 0.0
    for p in range(room.first_level[length - 1] + room.n_trees[length - 1]):
        level[p] = 0.0
    level[0] = -total
    for t in range(length):
        before, first = (t - 1) * 2 * n + n, room.first_level[t]
        for y in range(t * n, t * n + room.n_used[t]):
            i = room.used[y]
            level[first + room.tree[before + i] if t > 0 else 0] += m[t * n + i]
            if t < length - 1:
                level[room.first_level[t + 1] + room.tree[before + n + i]] -= m[t * n + i]
    for p in range(room.first_level[length - 1] + room.n_trees[length - 1]):
        left = max(left, abs(level[p]))
    _solve_again(chain)
    for t in range(length):
        before, first = (t - 1) * 2 * n + n, room.first_level[t]
        for y in range(t * n, t * n + room.n_used[t]):
            i = room.used[y]
            change = -level[first + room.tree[before + i] if t > 0 else 0]
            if t < length - 1:
                change += level[room.first_level[t + 1] + room.tree[before + n + i]]
            m[t * n + i] += room.weight[t * n + i] * change
    for t in range(length - 1):
        _write_flows_between(t, chain)
    return left


@leaf
def _solve_again(chain: ForestChain) -> None:
    """Solve eliminated equations for the right-hand side that stands in the place of the levels."""
    x, level, length, row = chain.room.equations, chain.room.level, chain.length, np.uint64(0)
    at = np.uint64(0)
    for h in range(length):
        k, width, _ = _shape(h, chain)
        for p in range(k):
            share = level[at] * x[row + p]
            for j in range(p + ONE, width - ONE):
                level[at + j - p] -= share * x[row + j]
            x[row + width - ONE] = level[at]
            row += width
            at += ONE
    _substitute_all(chain, row)


@leaf
def _substitute_all(chain: ForestChain, row: np.uint64) -> None:
    """Write the levels, the last one first, from eliminated equations that end before `row`."""
    for h in range(chain.length - 1, -1, -1):
        k, width, _ = _shape(h, chain)
        last = np.uint64(chain.room.first_level[h]) + k
        for p in range(k):
            row -= width
            _substitute(
                chain.room.equations, chain.room.level, row, k - ONE - p, width, last - ONE - p
            )
