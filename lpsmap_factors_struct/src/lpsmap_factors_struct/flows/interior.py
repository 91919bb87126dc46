"""The interior of a chain's flows: a primal-dual method that comes close to any solution.

Mehrotra's (1992) predictor and corrector. Marginals are eliminated, so that what is left of the
Newton equations is a network whose edges have the conductances flow / slack, see
`lpsmap_factors_struct.flows.network`. Slacks are those of the potentials throughout, so that only
the flows' balance is to be found.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_factors_struct.flows.chain import Chain, sizes, write_marginals
from lpsmap_factors_struct.flows.network import eliminate_network, solve_network
from lpsmap_factors_struct.flows.vectors import stretch_sum

__all__ = ["follow_path"]

ZERO = np.uint64(0)

MOST_ITERATIONS = 60
BALANCED = 1e-6
"""What may be left of the imbalance that flows have at the start."""
STAY = 0.995
"""Share of the way to the boundary that a step may go."""


@leaf
def follow_path(chain: Chain, tol: float) -> bool:
    """Move flows and potentials until the sum of flow times slack is at most `tol`.

    Returns false if that was not reached, or if interrupted.
    """
    flow, room, (n, n_nodes, _) = chain.flow, chain.room, sizes(chain)
    source, imbalance, gap = flow.into[0], 1.0, _move(chain, 0.0)
    for _ in range(MOST_ITERATIONS):
        excess = write_marginals(chain, room.weight) - 1.0
        if not eliminate_network(
            flow.net, chain.length, chain.n_states, room.weight, room.conductance
        ):
            return False
        for k in range(n_nodes):
            room.d_out[k], room.d_into[k] = -room.m[k], room.m[k]
            room.to_out[k], room.to_into[k] = -room.m[k], room.m[k]
        _solve(chain, excess)
        step = 1.0 / _first_bound(chain)
        ahead = (1.0 - step) * gap + step * step * _second_order(chain)
        centre = (ahead / gap) ** 3 * gap / float((n_nodes - n) * n)
        _aim(chain, centre)
        for k in range(n_nodes):
            room.d_out[k], room.d_into[k] = room.to_out[k], room.to_into[k]
        moved = _solve(chain, excess)
        step = min(1.0, STAY / _bound(chain))
        gap = _move(chain, step)
        source += step * moved
        imbalance *= 1.0 - step
        for k in range(n_nodes - n):
            flow.out[k] += step * room.d_out[k]
            flow.into[k + n] += step * room.d_into[k + n]
        for k in range(n):
            flow.into[k] = source
        if not gap > tol and imbalance <= BALANCED:
            return gap >= 0.0
    return False


@leaf
def _solve(chain: Chain, excess: float) -> float:
    """Solve for changes of the potentials; returns that of the source."""
    room, net = chain.room, chain.flow.net
    return solve_network(net, chain.length, chain.n_states, room.d_out, room.d_into, excess)


@leaf
def _first_bound(chain: Chain) -> float:
    """Return one over the step at which the first slack or flow is zero, for the predictor.

    There, a flow changes by ``-e (1 + r)`` where its slack changes by r times itself.
    """
    room, (n, n_nodes, _) = chain.room, sizes(chain)
    lane, d_out, d_into = room.lane, room.d_out, room.d_into
    for i in range(n):
        lane[i], lane[n + i] = 0.0, 0.0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                r = (d_out[first + i] - d_into[end]) * room.inverse[row + i]
                a, b = lane[i], lane[n + i]
                lane[i] = -r if -r > a else a
                lane[n + i] = r if r > b else b
    down, up = 0.0, 0.0
    for i in range(n):
        down, up = max(down, lane[i]), max(up, lane[n + i])
    return max(down, 1.0 + up)


@leaf
def _second_order(chain: Chain) -> float:
    """Return the sum of the products of the predictor's changes of flows and slacks."""
    room, e, (n, n_nodes, _) = chain.room, chain.flow.e, sizes(chain)
    lane, d_out, d_into = room.lane, room.d_out, room.d_into
    for i in range(n):
        lane[i] = 0.0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                d = d_out[first + i] - d_into[end]
                lane[i] -= e[row + i] * d * (1.0 + d * room.inverse[row + i])
    return stretch_sum(lane, np.uint64(0), n)


@leaf
def _aim(chain: Chain, centre: float) -> None:
    """Write the flows that the corrector aims at, and add them to its right-hand side."""
    room, e, (n, n_nodes, _) = chain.room, chain.flow.e, sizes(chain)
    d_out, d_into, push = room.d_out, room.d_into, room.push
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                r = (d_out[first + i] - d_into[end]) * room.inverse[row + i]
                aim = centre * room.inverse[row + i] + e[row + i] * (r + r * r)
                push[row + i] = aim
                room.to_out[first + i] += aim
            room.to_into[end] -= stretch_sum(push, row, n)


@leaf
def _bound(chain: Chain) -> float:
    """Return one over the step at which the first slack or flow is zero."""
    room, e, (n, n_nodes, _) = chain.room, chain.flow.e, sizes(chain)
    lane, d_out, d_into = room.lane, room.d_out, room.d_into
    for i in range(n):
        lane[i] = 0.0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                r = (d_out[first + i] - d_into[end]) * room.inverse[row + i]
                shrinks = 1.0 + r - room.push[row + i] / e[row + i]
                shrinks = shrinks if shrinks > -r else -r
                lane[i] = shrinks if shrinks > lane[i] else lane[i]
    most = STAY
    for i in range(n):
        most = max(most, lane[i])
    return most


@leaf
def _move(chain: Chain, step: float) -> float:
    """Move flows and slacks; returns the sum of their products."""
    room, e, (n, n_nodes, _) = chain.room, chain.flow.e, sizes(chain)
    lane, d_out, d_into = room.lane, room.d_out, room.d_into
    slack, conductance, push = room.slack, room.conductance, room.push
    for i in range(n):
        lane[i] = 0.0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                k = row + i
                flow, z = e[k], slack[k]
                if step > 0.0:
                    d = d_out[first + i] - d_into[end]
                    flow += step * (push[k] - flow - conductance[k] * d)
                    z += step * d
                inverse = 1.0 / z
                e[k], slack[k] = flow, z
                room.inverse[k], conductance[k] = inverse, flow * inverse
                lane[i] += flow * z
    return stretch_sum(lane, np.uint64(0), n)
