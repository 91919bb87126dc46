"""The solution of a chain's local problem on forests, and products with its derivative.

A primal-dual active set method, which is a semismooth Newton method (Hintermüller, Ito & Kunisch
2002). Each round solves the equations of a face, removes edges with negative flow, and adds
improving paths. Distant edges hardly affect each other, so that each round removes the worst edges
and adds the best paths in all parts of the chain. Termination is not guaranteed. When the method
terminates, the optimality conditions hold.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import interrupted, leaf
from lpsmap_factors_struct.chains.forest import (
    FOREST_SOLVED,
    LEAVING,
    NO_FLOW,
    ForestChain,
    find_trees,
    prune_to_paths,
)
from lpsmap_factors_struct.chains.improving_paths import add_improving_paths, add_tied_edges
from lpsmap_factors_struct.chains.initial_forest import initialise_forest
from lpsmap_factors_struct.chains.levels import (
    centre_potentials,
    refine_flows,
    solve_levels,
    write_flows,
)
from lpsmap_factors_struct.chains.problem_reader import FORBIDDEN

SLACK_ROUNDING = 2.0**-46
"""Slacks up to this, relative to the largest potential, are zero."""

MAX_ROUNDS = 4_000
"""Maximum number of faces. Chains of 50 words and 20 states take 1 to 100; those of 20 words and 60
states take up to 900 for score scales of 1e-8."""

MAX_IMBALANCE = 1e-11
"""Largest imbalance of a tree's inflow and outflow that is refined away."""

MAX_POTENTIAL = 1e5
"""Largest potential for which marginals are accurate enough."""

CENTRE_ABOVE, CENTRING_GAIN = 256.0, 8.0
"""Larger potentials are centred. If that reduces them by more than `CENTRING_GAIN`, the same face
is solved once more, to recover the lost precision."""

FIRST_TOLL, TOLL_DECAY, MIN_TOLL, MAX_TOLL, MAX_GAIN = 0.3, 0.4, 0.01, 1e4, 4.0
"""New paths pay a toll for every unused node. It starts at `FIRST_TOLL`, or at 0 from the solution
of another problem, and falls in every round, but rises after a gain above `MAX_GAIN`. The gain of a
path adds up over its nodes, and so does the risk that a flow on it becomes negative, with which the
whole path leaves. Without tolls, long paths come again and again while short ones with less gain
have to wait: chains of 5000 x 50 took 2 to 30 times as long for score scales of 0.3 to 10, and
those of 50 x 20 1.1 to 1.5 times."""

LEAVING_SHARE = 0.5
"""An edge leaves in a round if its flow is at most this share of the smallest in the window."""

MIN_WINDOW, MAX_DOUBLINGS, PATIENCE = 2, 6, 8
"""The window of layers, to either side, in which changes are compared. Whenever the number of
changes has no new minimum for `PATIENCE` rounds, it doubles: fewer changes at once end a cycle of
the same faces."""

MAX_CHANGES = 1 << 60
"""More than any number of changes."""


@leaf
def solve_on_forest(chain: ForestChain) -> bool:
    """Solve the problem in a chain's workspace; returns whether it is solved.

    A forest that solves another problem is the starting point. Scores in the workspace are shifted.
    """
    warm = chain.forest.header[FOREST_SOLVED] == 1.0
    chain.forest.header[FOREST_SOLVED] = 0.0
    if warm and _solve_from_forest(chain, 0.0):
        return True
    return initialise_forest(chain) > -0.5 * FORBIDDEN and _solve_from_forest(chain, FIRST_TOLL)


@leaf
def _solve_from_forest(chain: ForestChain, toll: float) -> bool:
    """Solve the problem from a forest, with a first toll; returns whether it is solved."""
    _forget_trees(chain)
    fewest, waited = MAX_CHANGES, 0
    for _ in range(MAX_ROUNDS):
        if interrupted() or not _solve_face(chain, 1.0):
            return False
        magnitude, far = 1.0 + _magnitude(chain), False
        if magnitude > CENTRE_ABOVE:
            centre_potentials(chain)
            before, magnitude = magnitude, 1.0 + _magnitude(chain)
            far = before > CENTRING_GAIN * magnitude
        if magnitude > MAX_POTENTIAL:
            return False
        tight = SLACK_ROUNDING * magnitude
        window = MIN_WINDOW << min(waited // PATIENCE, MAX_DOUBLINGS)
        left = _mark_leaving(chain, window)
        joined, gain = add_improving_paths(chain, tight, toll, window)
        while left + joined == 0 and toll > 0.0:
            if interrupted():
                return False
            toll = _lower(toll)
            joined, gain = add_improving_paths(chain, tight, toll, window)
        if left + joined == 0 and not far:
            if refine_flows(chain, 1.0) > MAX_IMBALANCE:
                return False
            _mark_leaving(chain, window)
            add_tied_edges(chain, tight)
            chain.forest.header[FOREST_SOLVED] = 1.0
            return True
        waited = 0 if left + joined < fewest else waited + 1
        fewest = min(fewest, left + joined)
        toll = _raise(toll) if gain > MAX_GAIN else _lower(toll)
    return False


@leaf
def _lower(toll: float) -> float:
    """Return the next lower toll, 0 below `MIN_TOLL`."""
    return TOLL_DECAY * toll if toll > MIN_TOLL else 0.0


@leaf
def _raise(toll: float) -> float:
    """Return the next higher toll, from `FIRST_TOLL` to `MAX_TOLL`."""
    return min(max(FIRST_TOLL, toll / TOLL_DECAY), MAX_TOLL)


@leaf
def multiply_on_forest(chain: ForestChain) -> bool:
    """Multiply the Jacobian: solve the problem on the face for flows that sum to zero.

    The result is in `ForestWorkspace.target`. Returns whether the chain has a forest.
    """
    if chain.forest.header[FOREST_SOLVED] == 0.0:
        return False
    _forget_trees(chain)
    if not _solve_face(chain, 0.0):
        return False
    if _magnitude(chain) <= CENTRE_ABOVE:
        return True
    centre_potentials(chain)
    return _solve_face(chain, 0.0)


@leaf
def _forget_trees(chain: ForestChain) -> None:
    for t in range(chain.length):
        chain.work.n_trees[t] = 0


@leaf
def _solve_face(chain: ForestChain, total: float) -> bool:
    """Solve the problem on a forest without sign constraints; returns whether it is solvable."""
    if not (prune_to_paths(chain) and find_trees(chain) and solve_levels(chain, total)):
        return False
    write_flows(chain)
    return True


@leaf
def _magnitude(chain: ForestChain) -> float:
    """Return the largest potential of the used nodes."""
    work, n, most = chain.work, chain.n_states, 0.0
    for t in range(chain.length):
        here = np.uint64(t * n)
        for y in range(here, here + np.uint64(work.n_used[t])):
            k = here + np.uint64(work.used[y])
            most = max(most, abs(work.out[k]), abs(work.into[k]))
    return most


@leaf
def _mark_leaving(chain: ForestChain, window: int) -> int:
    """Adopt the flows of the face, and mark edges with negative flow; return their number."""
    forest, work, n, left = chain.forest, chain.work, chain.n_states, 0
    worst, target, steps = work.worst, work.target, chain.length - 1
    for t in range(steps):
        row, least = np.uint64(t * 2 * n), -NO_FLOW
        for x in range(row, row + np.uint64(forest.n_edges[t])):
            flow = target[x]
            least = flow if flow < least else least
            forest.flow[x] = flow if flow > 0.0 else 0.0
        worst[t] = least
    for t in range(steps):
        least = -NO_FLOW
        for s in range(max(0, t - window), min(steps, t + window + 1)):
            least = min(least, LEAVING_SHARE * worst[s])
        if worst[t] == -NO_FLOW or worst[t] > least:
            continue
        row = np.uint64(t * 2 * n)
        for x in range(row, row + np.uint64(forest.n_edges[t])):
            leaves = target[x] <= least
            forest.flow[x] = LEAVING if leaves else forest.flow[x]
            left += int(leaves)
        work.n_trees[t + 1] = 0
    return left
