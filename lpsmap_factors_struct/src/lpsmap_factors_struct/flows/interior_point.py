"""A primal-dual interior-point method for a chain's flows.

Mehrotra's (1992) predictor-corrector method. Without the marginals, which are eliminated, the
Newton equations are those of a network with the conductances flow / slack of its edges, see
`lpsmap_factors_struct.flows.electric_network`. Slacks always agree with the potentials. Only the
flows are not balanced at first.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_factors_struct.flows.chain import Chain, sizes, write_marginals
from lpsmap_factors_struct.flows.electric_network import eliminate_network, solve_network
from lpsmap_factors_struct.flows.vector_sums import range_sum

__all__ = ["follow_path"]

ZERO = np.uint64(0)

MAX_ITERATIONS = 60
"""Maximum number of iterations of the interior-point method."""
RELATIVE_IMBALANCE = 1e-6
"""Largest final imbalance of the flows, relative to the initial one."""
STEP_FRACTION = 0.995
"""Maximum length of a step, relative to the distance to the boundary."""


@leaf
def follow_path(chain: Chain, tol: float) -> bool:
    """Iterate until the sum of flow times slack is at most `tol`.

    Returns false if the limit of iterations is reached, or if interrupted.
    """
    flow, work, (n, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    source, imbalance, gap = flow.into[0], 1.0, _move(chain, 0.0)
    for _ in range(MAX_ITERATIONS):
        excess = write_marginals(chain, work.weight) - 1.0
        if not eliminate_network(
            flow.net, chain.length, chain.n_states, work.weight, work.conductance
        ):
            return False
        for k in range(n_nodes):
            work.d_out[k], work.d_into[k] = -work.m[k], work.m[k]
            work.to_out[k], work.to_into[k] = -work.m[k], work.m[k]
        _solve(chain, excess)
        step = 1.0 / _first_bound(chain)
        ahead = (1.0 - step) * gap + step * step * _second_order(chain)
        centre = (ahead / gap) ** 3 * gap / float((n_nodes - n) * n)
        _write_targets(chain, centre)
        for k in range(n_nodes):
            work.d_out[k], work.d_into[k] = work.to_out[k], work.to_into[k]
        moved = _solve(chain, excess)
        step = min(1.0, STEP_FRACTION / _bound(chain))
        gap = _move(chain, step)
        source += step * moved
        imbalance *= 1.0 - step
        for k in range(n_nodes - n):
            flow.out[k] += step * work.d_out[k]
            flow.into[k + n] += step * work.d_into[k + n]
        for k in range(n):
            flow.into[k] = source
        if not gap > tol and imbalance <= RELATIVE_IMBALANCE:
            return gap >= 0.0
    return False


@leaf
def _solve(chain: Chain, excess: float) -> float:
    """Solve for the changes of the potentials; returns the change at the source."""
    work, net = chain.work, chain.flow.net
    return solve_network(net, chain.length, chain.n_states, work.d_out, work.d_into, excess)


@leaf
def _first_bound(chain: Chain) -> float:
    """Return the reciprocal of the predictor's step at which the first slack or flow is zero.

    If a slack changes by r times itself, the flow changes by ``-e (1 + r)``.
    """
    work, (n, n_nodes, _) = chain.work, sizes(chain)
    lane, d_out, d_into = work.lane, work.d_out, work.d_into
    for i in range(n):
        lane[i], lane[n + i] = 0.0, 0.0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                r = (d_out[first + i] - d_into[end]) * work.inverse[row + i]
                a, b = lane[i], lane[n + i]
                lane[i] = -r if -r > a else a
                lane[n + i] = r if r > b else b
    down, up = 0.0, 0.0
    for i in range(n):
        down, up = max(down, lane[i]), max(up, lane[n + i])
    return max(down, 1.0 + up)


@leaf
def _second_order(chain: Chain) -> float:
    """Return the sum of products of the predictor's changes of flows and slacks."""
    work, e, (n, n_nodes, _) = chain.work, chain.flow.e, sizes(chain)
    lane, d_out, d_into = work.lane, work.d_out, work.d_into
    for i in range(n):
        lane[i] = 0.0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                d = d_out[first + i] - d_into[end]
                lane[i] -= e[row + i] * d * (1.0 + d * work.inverse[row + i])
    return range_sum(lane, np.uint64(0), n)


@leaf
def _write_targets(chain: Chain, centre: float) -> None:
    """Write the target flows of the corrector, and add them to its right-hand side."""
    work, e, (n, n_nodes, _) = chain.work, chain.flow.e, sizes(chain)
    d_out, d_into, push = work.d_out, work.d_into, work.push
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                r = (d_out[first + i] - d_into[end]) * work.inverse[row + i]
                aim = centre * work.inverse[row + i] + e[row + i] * (r + r * r)
                push[row + i] = aim
                work.to_out[first + i] += aim
            work.to_into[end] -= range_sum(push, row, n)


@leaf
def _bound(chain: Chain) -> float:
    """Return the reciprocal of the step at which the first slack or flow is zero."""
    work, e, (n, n_nodes, _) = chain.work, chain.flow.e, sizes(chain)
    lane, d_out, d_into = work.lane, work.d_out, work.d_into
    for i in range(n):
        lane[i] = 0.0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                r = (d_out[first + i] - d_into[end]) * work.inverse[row + i]
                shrinks = 1.0 + r - work.push[row + i] / e[row + i]
                shrinks = shrinks if shrinks > -r else -r
                lane[i] = shrinks if shrinks > lane[i] else lane[i]
    most = STEP_FRACTION
    for i in range(n):
        most = max(most, lane[i])
    return most


@leaf
def _move(chain: Chain, step: float) -> float:
    """Update flows and slacks; returns the sum of their products."""
    work, e, (n, n_nodes, _) = chain.work, chain.flow.e, sizes(chain)
    lane, d_out, d_into = work.lane, work.d_out, work.d_into
    slack, conductance, push = work.slack, work.conductance, work.push
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
                work.inverse[k], conductance[k] = inverse, flow * inverse
                lane[i] += flow * z
    return range_sum(lane, np.uint64(0), n)
