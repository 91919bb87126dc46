"""The initial forest of a chain: the best paths through nodes that are likely to be used.

Starting from the best path, whose marginals are 1, other nodes gain by the quadratic term alone.
The gain that the nodes of a layer share is not determined by that layer. Two units turn out to
select most nodes that the solution uses, and few others, for scores of any scale.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray
from lpsmap_factors_struct.chains.forest import UNUSED, USED, ForestChain, append_edge, unite_trees
from lpsmap_factors_struct.viterbi import best_arrivals

LAYER_UNITS = 2.0
"""Total of the shares of a layer's nodes. A node's share is a threshold minus the deficit of the
best path through it. For chains of 50 x 20 with score scales of 3, 1 and 0.3, this takes 0.7, 0.7
and 0.9 of the rounds from the best path alone, and for a scale of 0.03 as many rounds. Totals of 1
and 3 take 0.8 of them."""


@leaf
def initialise_forest(chain: ForestChain) -> float:
    """Write a forest of best paths, with all flow on the best one; return its score.

    The nodes' scores are shifted so that they cancel those of the edges on the best path. Otherwise
    large scores would cost all potentials their precision.
    """
    work, n, length = chain.work, chain.n_states, chain.length
    most = _forward_pass(chain)
    last, best = (length - 1) * n, 0
    for k in range(n - 1, -1, -1):
        work.lack[last + k], work.mark[last + k] = most - work.before[last + k], UNUSED
        best = k if work.before[last + k] == most else best
    work.mark[last + best] = USED
    _list_used(length - 1, chain)
    for t in range(length - 1, -1, -1):
        shift, here = work.score[t * n + best], best
        if t > 0:
            _backward_step(t - 1, chain)
            best = _append_layer(t - 1, here, chain)
            shift += chain.steps[chain.first + (t - 1) * chain.stride + best * n + here]
        for k in range(t * n, (t + 1) * n):
            work.score[k] -= shift
    return most


@leaf
def _forward_pass(chain: ForestChain) -> float:
    """Write the score of the best path to every node; return the best of the last layer."""
    work, n, length, most = chain.work, chain.n_states, chain.length, -np.inf
    for k in range(n):
        work.before[k] = work.score[k]
    for t in range(length - 1):
        step = chain.first + t * chain.stride
        best_arrivals(work.before, t * n, chain.steps, step, n, work.best, (t + 1) * n)
        for k in range(np.uint64((t + 1) * n), np.uint64((t + 2) * n)):
            work.before[k] = work.best[k] + work.score[k]
    for k in range((length - 1) * n, length * n):
        most = max(most, work.before[k])
    return most


@leaf
def _backward_step(t: int, chain: ForestChain) -> None:
    """Write the deficits of the best paths through a layer's nodes and the next layer's used nodes.

    The parent of a vertex, on either side, is the other vertex of its best edge.
    """
    work, n, steps = chain.work, np.uint64(chain.n_states), chain.steps
    before, lack, parent, mark = work.before, work.lack, work.parent, work.mark
    here = np.uint64(t) * n
    behind, row, first = here + n, here + here, np.uint64(chain.first + t * chain.stride)
    for k in range(here, here + n):
        lack[k], mark[k] = np.inf, UNUSED
    for y in range(behind, behind + np.uint64(work.n_used[t + 1])):
        j = np.uint64(work.used[y])
        best, rest, source = work.best[behind + j], lack[behind + j], np.uint64(0)
        step = first + j
        for i in range(n):
            less = best - (before[here + i] + steps[step])
            source = np.uint64(i) if less == 0.0 else source
            closer = rest + less < lack[here + i]
            lack[here + i] = rest + less if closer else lack[here + i]
            parent[row + i] = j if closer else parent[row + i]
            step += n
        parent[row + n + j] = source


@leaf
def _append_layer(t: int, best: int, chain: ForestChain) -> int:
    """Choose the used nodes of a layer, append their best edges; return the best path's node.

    Every used node of the next layer and of this layer gets its best edge, so that all paths are
    complete.
    """
    forest, work, n = chain.forest, chain.work, chain.n_states
    here, row, source = t * n, t * 2 * n, 0
    forest.n_edges[t] = 0
    for v in range(row, row + 2 * n):
        work.tree[v] = -1
    for y in range(here + n, here + n + work.n_used[t + 1]):
        j = work.used[y]
        i = work.parent[row + n + j]
        work.mark[here + i] = USED
        unite_trees(t, i, j, chain)
        append_edge(t, i, j, 1.0 if j == best else 0.0, chain)
        source = i if j == best else source
    _list_used(t, chain)
    for y in range(here, here + work.n_used[t]):
        i = work.used[y]
        if unite_trees(t, i, work.parent[row + i], chain):
            append_edge(t, i, work.parent[row + i], 0.0, chain)
    return source


@leaf
def _list_used(t: int, chain: ForestChain) -> None:
    """List the used nodes of a layer: those marked already, and those with a share."""
    work, n = chain.work, np.uint64(chain.n_states)
    used, mark, lack = work.used, work.mark, work.lack
    first = last = np.uint64(t) * n
    most = _share_threshold(lack, first, n, work.rest)
    for i in range(n):
        used[last] = i
        last += np.uint64((mark[first + i] == USED) | (lack[first + i] < most))
    work.n_used[t] = last - first


@leaf
def _share_threshold(lack: FloatArray, first: np.uint64, n: np.uint64, few: FloatArray) -> float:
    """Return the threshold below which the numbers' distances to it sum to `LAYER_UNITS`.

    Michelot's (1986) algorithm. The smallest number is zero. `few` holds the remaining numbers.
    """
    count = np.uint64(0)
    for i in range(n):
        few[count] = lack[first + i]
        count += np.uint64(lack[first + i] < LAYER_UNITS)
    most, before = LAYER_UNITS, np.uint64(0)
    while count != before and count > 0:
        total, before = LAYER_UNITS, count
        for k in range(count):
            total += few[k]
        most, count = total / count, np.uint64(0)
        for k in range(before):
            few[count] = few[k]
            count += np.uint64(few[k] < most)
    return most
