"""Preparation of the interior-point method: score reduction, edge pruning and the initial point."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray
from lpsmap_factors_struct.flows.chain import BARRED, Chain, sizes

__all__ = ["prune_edges", "reduce_scores", "shift_potentials", "write_initial_point"]

ZERO, ONE = np.uint64(0), np.uint64(1)

PRUNING_MARGIN = 1e-9
"""Relative margin of the pruning bound, against rounding."""

SLACK_SHARE = 0.1
"""Minimum slack of the initial point, as a share of the largest deficit of an edge."""

MIN_DEFICIT = 1e-9
"""Lower bound of the largest deficit, for edges that are almost equal."""


@leaf
def reduce_scores(chain: Chain) -> float:
    """Measure all scores from the best paths to the end, which preserves their precision.

    The potential of a node is the best score of a path that follows it. After the reduction, the
    scores of nodes are zero except in the first layer, and the score of an edge is minus its
    deficit. Returns the score of the best path.
    """
    work, (n, n_nodes, _) = chain.work, sizes(chain)
    to_end, from_node, best = work.level_out, work.level_into, -np.inf
    _best_to_end(chain, to_end)
    for k in range(n_nodes):
        from_node[k] = max(work.score[k] + to_end[k], -BARRED)
        if k < n:
            best = max(best, from_node[k])
    for k in range(n_nodes):
        work.score[k] = 0.0 if k >= n else from_node[k] - best
        from_node[k] = from_node[k] if k >= n else best
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                step = work.step[row + i] + (from_node[end] - to_end[first + i])
                work.step[row + i] = step if work.step[row + i] > -0.5 * BARRED else -BARRED
    return best


@leaf
def shift_potentials(chain: Chain, sign: float) -> None:
    """Convert potentials from the original scores to reduced ones (sign -1), or back (sign 1)."""
    flow, work, (_, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    for k in range(n_nodes):
        flow.out[k] += sign * work.level_out[k]
        flow.into[k] += sign * work.level_into[k]


@leaf
def prune_edges(chain: Chain) -> float:
    """Forbid the edges that no solution uses, given reduced scores; returns the largest deficit.

    In terms of the scores ``c - m / w``, all paths of a solution are equal, and no other path is
    better, including the best path in terms of c. Hence their deficit is at most the sum of the
    layers' largest 1 / w. All remaining scores are moderate. Nodes without a path get weight zero.
    """
    work, (n, n_nodes, _) = chain.work, sizes(chain)
    behind, reach, most = work.d_into, PRUNING_MARGIN, MIN_DEFICIT
    _best_to_node(chain, behind)
    for first in range(ZERO, n_nodes, n):
        least = np.inf
        for k in range(first, first + n):
            least = min(least, work.weight[k])
        reach += (1.0 + PRUNING_MARGIN) / least
    for k in range(n_nodes):
        if behind[k] < -reach:
            work.weight[k] = 0.0
        if k < n:
            most = max(most, -work.score[k] if work.weight[k] > 0.0 else 0.0)
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                if behind[first + i] + work.step[row + i] < -reach or work.weight[end] == 0.0:
                    work.step[row + i] = -BARRED
                else:
                    most = max(most, -work.step[row + i])
    return most


@leaf
def _best_to_end(chain: Chain, best: FloatArray) -> None:
    """Write for every node the largest score of a path that follows it."""
    work, (n, n_nodes, _) = chain.work, sizes(chain)
    for k in range(n_nodes):
        best[k] = -BARRED if k < n_nodes - n else 0.0
    for back in range(ONE, np.uint64(chain.length)):
        first = n_nodes - (back + ONE) * n
        for end in range(first + n, first + n + n):
            row, level = (end - n) * n, max(work.score[end] + best[end], -BARRED)
            for i in range(n):
                score = work.step[row + i] + level
                best[first + i] = score if score > best[first + i] else best[first + i]


@leaf
def _best_to_node(chain: Chain, behind: FloatArray) -> None:
    """Write minus the deficit of the best path to each node, for reduced scores."""
    work, (n, n_nodes, _) = chain.work, sizes(chain)
    for k in range(n):
        behind[k] = work.score[k]
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row, most = (end - n) * n, -BARRED
            for i in range(n):
                score = behind[first + i] + work.step[row + i]
                most = score if score > most else most
            behind[end] = most


@leaf
def write_initial_point(chain: Chain, typical: float) -> None:
    """Write uniform flows, and potentials for which all edges have a positive slack.

    Starting at the end, the *in* of every node is chosen for a uniform marginal, and the *out* of
    the nodes before is slightly larger than the slacks require.
    """
    flow, work, (n, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    _initial_potentials(chain, SLACK_SHARE * typical)
    for first in range(ZERO, n_nodes - n, n):
        count = 0.0
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                slack = flow.out[first + i] - flow.into[end] - work.step[row + i]
                allowed = work.step[row + i] > -0.5 * BARRED
                work.slack[row + i] = slack if allowed else BARRED
                count += allowed
        for k in range(first * n, (first + n) * n):
            flow.e[k] = 1.0 / count if work.step[k] > -0.5 * BARRED else 0.0


@leaf
def _initial_potentials(chain: Chain, extra: float) -> None:
    """Write the potentials of `write_initial_point`, for slacks of at least `extra`."""
    flow, work, (n, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    for k in range(n_nodes):
        flow.out[k] = -BARRED if k < n_nodes - n else 0.0
    for back in range(ONE, np.uint64(chain.length)):
        first, count = n_nodes - back * n, 0.0
        for k in range(first, first + n):
            count += work.weight[k] > 0.0
        for k in range(first, first + n):
            alive = work.weight[k] > 0.0
            flow.into[k] = flow.out[k] - 1.0 / (count * work.weight[k]) if alive else 0.0
            flow.out[k] = flow.out[k] if alive else 0.0
            row = (k - n) * n
            for i in range(n):
                level = work.step[row + i] + flow.into[k] + extra
                before = flow.out[first - n + i]
                flow.out[first - n + i] = level if alive and level > before else before
    total, weights = -1.0, 0.0
    for k in range(n):
        flow.out[k] = flow.out[k] if work.weight[k] > 0.0 else 0.0
        total += work.weight[k] * (work.score[k] + flow.out[k])
        weights += work.weight[k]
    for k in range(n):
        flow.into[k] = total / weights
