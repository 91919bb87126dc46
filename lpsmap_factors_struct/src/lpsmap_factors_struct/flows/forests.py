"""The solution of a chain's local problem on forests, and products with its derivative.

Primal and dual active sets at once, as semismooth Newton methods have them (Hintermüller, Ito &
Kunisch 2002): the equations of a face are solved, edges of negative flow leave it, and paths that
gain join. Far apart, edges hardly matter to each other, so that the worst ones leave and the best
paths join all over the chain. Nothing promises that this ends; where it does, the optimality
conditions hold.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, leaf
from lpsmap_factors_struct.flows.better_paths import join_best_paths, join_ties
from lpsmap_factors_struct.flows.chain import BARRED
from lpsmap_factors_struct.flows.first_paths import begin_with_best_paths
from lpsmap_factors_struct.flows.forest import (
    LEAVES,
    SOLVED,
    ForestChain,
    find_trees,
    keep_whole_paths,
)
from lpsmap_factors_struct.flows.levels import (
    centre_potentials,
    refine_flows,
    solve_levels,
    write_flows,
)

__all__ = ["multiply_on_forest", "solve_on_forest"]

MOST_ROUNDS = 400
"""Faces that are tried. Of 50 words and 20 states, it takes 1 to 100."""

NO_FLOW = 1e-13
"""Flows up to this are rounding, of sums that are one."""

BALANCED = 1e-11
"""What may flow into a tree and not out of it, by rounding, before that is taken out."""

ROUNDING = 2.0**-46
"""Slacks up to this, for the magnitude of what they are differences of, are zero."""

MOST_MAGNITUDE = 1e5
"""Potentials beyond this leave marginals too few digits."""

LARGE, FAR = 256.0, 8.0
"""Potentials beyond this are centred. Where that makes them smaller by this factor, the same face
is solved once more, for the digits that they had lost."""

APART, SHARE = 2, 0.5
"""Edges leave at once where their flow is no less negative than this share of the least flow
within so many layers."""


@leaf
def solve_on_forest(chain: ForestChain) -> bool:
    """Solve the problem in a chain's room, whose scores are moved; returns whether it is solved.

    Where the forest solves another problem, that is where it starts.
    """
    warm = chain.forest.facts[SOLVED] == 1.0
    chain.forest.facts[SOLVED] = 0.0
    if warm and _settle(chain):
        return True
    return begin_with_best_paths(chain) > -0.5 * BARRED and _settle(chain)


@leaf
def _settle(chain: ForestChain) -> bool:
    """Solve the problem from a forest; returns whether it is solved."""
    _forget_trees(chain)
    for _ in range(MOST_ROUNDS):
        if interrupted() or not _solve_face(chain, 1.0):
            return False
        magnitude, far = 1.0 + _magnitude(chain), False
        if magnitude > LARGE:
            centre_potentials(chain)
            before, magnitude = magnitude, 1.0 + _magnitude(chain)
            far = before > FAR * magnitude
        if magnitude > MOST_MAGNITUDE:
            return False
        left = _let_leave(chain)
        changes = left + join_best_paths(chain, ROUNDING * magnitude)
        if changes == 0 and not far:
            if refine_flows(chain, 1.0) > BALANCED:
                return False
            _let_leave(chain)
            join_ties(chain, ROUNDING * magnitude)
            chain.forest.facts[SOLVED] = 1.0
            return True
    return False


@leaf
def multiply_on_forest(chain: ForestChain) -> bool:
    """Solve the problem on the face for flows that sum to zero: the change along the scores.

    The flows are those that are aimed at. Returns whether there is a forest.
    """
    if chain.forest.facts[SOLVED] == 0.0:
        return False
    _forget_trees(chain)
    if not _solve_face(chain, 0.0):
        return False
    if _magnitude(chain) <= LARGE:
        return True
    centre_potentials(chain)
    return _solve_face(chain, 0.0)


@leaf
def _forget_trees(chain: ForestChain) -> None:
    for t in range(chain.length):
        chain.room.n_trees[t] = 0


@leaf
def _solve_face(chain: ForestChain, total: float) -> bool:
    """Solve the problem without signs on a forest; returns whether it has a solution."""
    if not (keep_whole_paths(chain) and find_trees(chain) and solve_levels(chain, total)):
        return False
    write_flows(chain)
    return True


@leaf
def _magnitude(chain: ForestChain) -> float:
    """Return the largest potential of the nodes that are used."""
    room, n, most = chain.room, chain.n_states, 0.0
    for t in range(chain.length):
        here = np.uint64(t * n)
        for y in range(here, here + np.uint64(room.n_used[t])):
            k = here + np.uint64(room.used[y])
            most = max(most, abs(room.out[k]), abs(room.into[k]))
    return most


@leaf
def _let_leave(chain: ForestChain) -> int:
    """Take on the flows of the face; mark edges to leave where these are negative; count them."""
    forest, room, n, left = chain.forest, chain.room, chain.n_states, 0
    worst, target, steps = room.worst, room.target, chain.length - 1
    for t in range(steps):
        row, least = np.uint64(t * 2 * n), -NO_FLOW
        for x in range(row, row + np.uint64(forest.n_edges[t])):
            flow = target[x]
            least = flow if flow < least else least
            forest.flow[x] = flow if flow > 0.0 else 0.0
        worst[t] = least
    for t in range(steps):
        least = -NO_FLOW
        for s in range(max(0, t - APART), min(steps, t + APART + 1)):
            least = min(least, SHARE * worst[s])
        if worst[t] == -NO_FLOW or worst[t] > least:
            continue
        row = np.uint64(t * 2 * n)
        for x in range(row, row + np.uint64(forest.n_edges[t])):
            leaves = target[x] <= least
            forest.flow[x] = LEAVES if leaves else forest.flow[x]
            left += int(leaves)
        room.n_trees[t + 1] = 0
    return left
