"""Improving paths of a chain's forest: search by the potentials of its face, and insertion."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_factors_struct.chains.forest import (
    NEW,
    UNUSED,
    USED,
    ForestChain,
    append_edge,
    unite_trees,
)
from lpsmap_factors_struct.viterbi import best_arrivals, best_source

NEARBY_SHARE, LAYER_SHARE = 0.5, 0.9
"""Paths are added in the same round if their gain is at least `NEARBY_SHARE` of the largest gain of
paths that end within the window, and `LAYER_SHARE` of the largest in the same layer.

Nearly all layers get a path, but few get two. With a `LAYER_SHARE` of 0.5, chains of 200 x 100 and
of 1000 x 50 take up to 1.2 times as long, with 0 twice."""


@leaf
def add_improving_paths(
    chain: ForestChain, tight: float, toll: float, window: int
) -> tuple[int, float]:
    """Add paths between used nodes that gain more than `tight`.

    Parameters
    ----------
    chain
        The chain, whose face is solved.
    tight
        The largest gain that is rounding.
    toll
        The price of an unused node, subtracted from the gain.
    window
        Paths compete with those that end within so many layers.

    Returns
    -------
    joined
        Number of added edges.
    gain
        The largest gain.
    """
    work, n, length, joined, came = chain.work, chain.n_states, chain.length, 0, 0
    largest = _find_gains(chain, tight, toll)
    for t in range(length - 2, -1, -1):
        most = 0.0
        for s in range(max(0, t - window), min(length - 1, t + window + 1)):
            most = max(most, NEARBY_SHARE * work.worst[s])
        wanted = work.worst[t] > 0.0 and work.worst[t] >= most
        if came == 0 and not wanted:
            continue
        least, came = max(LAYER_SHARE * work.worst[t], tight) if wanted else np.inf, 0
        behind = np.uint64((t + 1) * n)
        for j in range(n):
            k = behind + np.uint64(j)
            if (work.mark[k] == NEW) | (work.gain[k] > least):
                came += _add_or_exchange(t, _best_before(t, j, chain), j, came, chain)
        work.n_trees[t + 1] = 0 if came > 0 else work.n_trees[t + 1]
        joined += came
    return joined, largest


@leaf
def _find_gains(chain: ForestChain, tight: float, toll: float) -> float:
    """Find the gain of the best path to every end, in terms of the potentials; return the largest.

    The ends are the used nodes and the last layer. Viterbi's algorithm restarts at every used node.
    """
    work, n = chain.work, chain.n_states
    before, mark, source = work.before, work.mark, work.level[0]
    out, into, best, score, gain = work.out, work.into, work.best, work.score, work.gain
    largest = 0.0
    for k in range(n):
        before[k] = -out[k] if mark[k] == USED else score[k] - source - toll
    for t in range(chain.length - 1):
        _arrive(t, chain)
        most, ends = tight, t == chain.length - 2
        for k in range(np.uint64((t + 1) * n), np.uint64((t + 2) * n)):
            uses = mark[k] == USED
            goes_on = best[k] + score[k] - toll
            before[k] = -out[k] if uses else goes_on
            gains = best[k] + into[k] if uses else (goes_on if ends else 0.0)
            gain[k] = gains
            most = gains if gains > most else most
        work.worst[t] = most if most > tight else 0.0
        largest = max(largest, work.worst[t])
    return largest


@leaf
def _arrive(t: int, chain: ForestChain) -> None:
    """Write ``best[j] = max_i before[i] + t_ij`` for the ends j of a step."""
    work, n = chain.work, chain.n_states
    step = chain.first + t * chain.stride
    best_arrivals(work.before, t * n, chain.steps, step, n, work.best, (t + 1) * n)


@leaf
def _best_before(t: int, j: int, chain: ForestChain) -> int:
    """Return the first i that attains the maximum of `_arrive` at j."""
    n, step = chain.n_states, chain.first + t * chain.stride
    return best_source(chain.work.before, t * n, chain.steps, step, n, j)


# -------------------------------------------------------------------- new edges


@leaf
def add_tied_edges(chain: ForestChain, tight: float) -> None:
    """Add the edges without slack between used nodes. They have no flow, but belong to the face.

    The marginals can also change along these edges.
    """
    work, n = chain.work, np.uint64(chain.n_states)
    for t in range(chain.length - 1):
        here = np.uint64(t) * n
        behind, first = here + n, np.uint64(chain.first + t * chain.stride)
        for x in range(here, here + np.uint64(work.n_used[t])):
            i = np.uint64(work.used[x])
            row, out = first + i * n, work.out[here + i] - tight
            for y in range(behind, behind + np.uint64(work.n_used[t + 1])):
                j = np.uint64(work.used[y])
                tied = out - work.into[behind + j] <= chain.steps[row + j]
                if tied and unite_trees(t, work.used[x], work.used[y], chain):
                    append_edge(t, work.used[x], work.used[y], 0.0, chain)
                    work.n_trees[t + 1] = 0


@leaf
def _add_or_exchange(t: int, i: int, j: int, came: int, chain: ForestChain) -> int:
    """Add the edge of two states; returns whether it was added.

    An edge that closes a cycle replaces another edge, provided that no edge has been added or
    removed between these layers.
    """
    work, k = chain.work, t * chain.n_states + i
    if not unite_trees(t, i, j, chain):
        if came > 0 or work.n_trees[t + 1] == 0:
            return 0
        return _exchange(t, i, chain.n_states + j, chain)
    if work.mark[k] == UNUSED:
        work.mark[k] = NEW
    append_edge(t, i, j, 0.0, chain)
    return 1


@leaf
def _exchange(t: int, begin: int, end: int, chain: ForestChain) -> int:
    """Send flow around the cycle that an edge closes, so that it replaces the first empty edge.

    Along the cycle, edges lose and gain the same flow in turn. Returns whether the edge was added,
    which fails if the forest has it already.
    """
    forest, work = chain.forest, chain.work
    row, leaving, least = t * 2 * chain.n_states, -1, np.inf
    for sends in (False, True):
        v, w = begin, end
        while v != w:
            climbs = work.rank[row + v] < work.rank[row + w]
            lower = v if climbs else w
            x = work.order[row + work.rank[row + lower]]
            x, gives = row + (x if x >= 0 else -x - 1), (lower < chain.n_states) == climbs
            if sends:
                forest.flow[x] += -least if gives else least
            elif gives and forest.flow[x] < least:
                leaving, least = x, forest.flow[x]
            v = work.parent[row + v] if climbs else v
            w = w if climbs else work.parent[row + w]
        if leaving < 0 or (forest.begin[leaving] == begin and forest.end[leaving] == end):
            return 0
    forest.begin[leaving], forest.end[leaving], forest.flow[leaving] = begin, end, least
    return 1
