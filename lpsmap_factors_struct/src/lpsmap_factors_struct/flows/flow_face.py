"""The face of a chain's flows, which is the set of edges with a flow, and the solution on a face.

At the solution, edges of the face have no slack, and other edges have no flow. Flows and potentials
on a face are found by the method of multipliers, on the network of the face's edges. All edges have
the same large conductance, so that a step removes almost all of the slacks. Edges with a negative
flow are removed from the face, and edges with a negative slack are added, until there are no such
edges. Then the optimality conditions hold.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_factors_struct.flows.chain import (
    DIMENSION,
    ELIMINATED,
    N_ON,
    NO_FLOW,
    SLACK_ROUNDING,
    Chain,
    sizes,
    write_marginals,
)
from lpsmap_factors_struct.flows.electric_network import eliminate_network, solve_network

__all__ = ["choose_face", "refine_face", "solve_on_face"]

ZERO, ONE = np.uint64(0), np.uint64(1)

CONDUCTANCE = 1e8
"""Conductance of the face's edges. Weights are degrees of variables, at least 1."""

MAX_STEPS = 4
"""Limit of the steps of the multipliers. Two suffice if all slacks can vanish."""

CIRCULATION_SHARE = 1e-3
"""Slacks below this share of the largest are residuals of the steps, and no circulation."""

OFF, ON, NEW = 0, 1, 2
"""States of edges and nodes. New ones are added together with the paths to them."""


@leaf
def choose_face(chain: Chain, typical: float) -> None:
    """Choose the edges whose flow is large relative to their slack, near a solution."""
    flow, work, (n, _, n_edges) = chain.flow, chain.work, sizes(chain)
    scale = 1.0 / (typical * float(n * n))
    for k in range(n_edges):
        flow.on[k] = ON if flow.e[k] > work.slack[k] * scale else OFF
        flow.e[k] = flow.e[k] if flow.on[k] == ON else 0.0
    flow.header[ELIMINATED] = 0.0


@leaf
def refine_face(chain: Chain, most_rounds: int) -> bool:
    """Find the solution, starting from a similar face; returns whether it was found.

    The initial potentials and flows must also be near the solution.
    """
    flow, (_, _, n_edges) = chain.flow, sizes(chain)
    for _ in range(most_rounds):
        if flow.header[ELIMINATED] == 0.0 and not _complete_paths(chain):
            return False
        steps = solve_on_face(chain, 1.0, MAX_STEPS)
        if steps < 0:
            return False
        _circulate(chain, steps)
        n_leave = 0
        for k in range(n_edges):
            if flow.on[k] == ON and flow.e[k] < -NO_FLOW:
                flow.on[k] = OFF
                n_leave += 1
            flow.e[k] = flow.e[k] if flow.e[k] > NO_FLOW else 0.0
        if _add_edges_to_face(chain) + n_leave == 0:
            return True
        flow.header[ELIMINATED] = 0.0
    return False


@leaf
def _circulate(chain: Chain, steps: int) -> None:
    """Send flow around cycles whose slacks cannot vanish, until an edge is empty.

    The remaining slacks of such a face form a circulation between each pair of layers, along which
    marginals are constant and scores decrease. Every step sent flow along it, limited by the
    conductance. Now it is only limited by the signs of the flows. The edge that is empty first gets
    a negative flow, so that it is removed from the face.
    """
    flow, work, slack, n = chain.flow, chain.work, chain.work.slack, chain.n_states
    worst = _write_slacks(chain)
    if worst <= SLACK_ROUNDING * _magnitude(chain):
        return
    n_on, sent, x = int(flow.header[N_ON]), float(steps) * CONDUCTANCE, 0
    while x < n_on:
        first, layer = x, work.begin[x] // n
        far, last = np.inf, -1
        while x < n_on and work.begin[x] // n == layer:
            k = work.edge[x]
            after = max(flow.e[k] + sent * slack[k], 0.0)
            if slack[k] > CIRCULATION_SHARE * worst and after < far * slack[k]:
                far, last = after / slack[k], k
            x += 1
        if last >= 0:
            for y in range(first, x):
                flow.e[work.edge[y]] += (sent - far) * slack[work.edge[y]]
            flow.e[last] = -np.inf


@leaf
def _write_slacks(chain: Chain) -> float:
    """Write the slacks of the face's edges; returns the largest."""
    flow, work = chain.flow, chain.work
    worst = 0.0
    for x in range(int(flow.header[N_ON])):
        k = work.edge[x]
        work.slack[k] = flow.out[work.begin[x]] - flow.into[work.end[x]] - work.step[k]
        worst = max(worst, abs(work.slack[k]))
    return worst


@leaf
def _complete_paths(chain: Chain) -> bool:
    """Remove the edges that are not on complete paths; returns whether a path is left."""
    flow, work, (n, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    on, used = flow.on, flow.used
    for k in range(n):
        used[k] = ON
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            used[end] = OFF
            for i in range(n):
                on[row + i] = ON if on[row + i] != OFF and used[first + i] == ON else OFF
                used[end] |= on[row + i]
    n_on = 0
    for back in range(ONE, np.uint64(chain.length)):
        begin = n_nodes - (back + ONE) * n
        used[begin : begin + n] = OFF
        for end in range(begin + n, begin + n + n):
            row = (end - n) * n
            for i in range(n):
                on[row + i] = on[row + i] if used[end] == ON else OFF
                used[begin + i] |= on[row + i]
                n_on += int(on[row + i])
    for k in range(n_nodes):
        flow.weight[k] = work.weight[k] if used[k] == ON else 0.0
        n_on -= int(used[k])
    for k in range(n):
        n_on += int(used[k]) + int(used[n_nodes - n + k])
    flow.header[DIMENSION] = n_on - 1
    return n_on > 0


@leaf
def solve_on_face(chain: Chain, total: float, most_steps: int) -> int:
    """Solve the problem on the face without sign constraints, for flows of some total.

    Writes `ChainWorkspace.m`. Returns the number of steps, -1 if interrupted.
    """
    flow, work, (n, n_nodes, n_edges) = chain.flow, chain.work, sizes(chain)
    if flow.header[ELIMINATED] == 0.0:
        for k in range(n_edges):
            work.conductance[k] = CONDUCTANCE * float(flow.on[k])
        if not eliminate_network(
            flow.net, chain.length, chain.n_states, flow.weight, work.conductance
        ):
            return -1
        flow.header[ELIMINATED] = 1.0
    _list_edges(chain)
    last, step = np.inf, 0
    for step in range(most_steps + 1):
        excess = write_marginals(chain, flow.weight) - total
        error = max(_write_right_hand_sides(chain), abs(excess))
        if (
            step == most_steps
            or error <= 0.1 * SLACK_ROUNDING * _magnitude(chain)
            or error > 0.5 * last
        ):
            break
        last = error
        source = solve_network(
            flow.net, chain.length, chain.n_states, work.d_out, work.d_into, excess
        )
        for k in range(n):
            work.d_into[k], work.d_out[n_nodes - n + k] = source, 0.0
        for x in range(int(flow.header[N_ON])):
            moved = work.d_out[work.begin[x]] - work.d_into[work.end[x]]
            flow.e[work.edge[x]] = work.push[x] - CONDUCTANCE * moved
        for k in range(n_nodes):
            used = flow.used[k] == ON
            flow.into[k] += work.d_into[k] if used or k < n else 0.0
            flow.out[k] += work.d_out[k] if used else 0.0
    return step


@leaf
def _list_edges(chain: Chain) -> None:
    """List the face's edges, and clear the flows of all others."""
    flow, work, (n, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    x = 0
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                if flow.on[row + i] == ON:
                    work.edge[x], work.begin[x], work.end[x] = row + i, first + i, end
                    x += 1
                else:
                    flow.e[row + i] = 0.0
    flow.header[N_ON] = x


@leaf
def _write_right_hand_sides(chain: Chain) -> float:
    """Write the right-hand sides of a step, and its target flows; returns the error.

    The error is the largest slack of the face's edges, or imbalance of a node.
    """
    flow, work, (n, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    d_out, d_into, worst = work.d_out, work.d_into, 0.0
    leave, come = work.to_out, work.to_into
    for k in range(n_nodes):
        d_out[k], d_into[k] = -work.m[k], work.m[k]
        leave[k], come[k] = -work.m[k], -work.m[k]
    for x in range(int(flow.header[N_ON])):
        k, begin, end = work.edge[x], work.begin[x], work.end[x]
        slack = flow.out[begin] - flow.into[end] - work.step[k]
        aim = flow.e[k] - CONDUCTANCE * slack
        work.push[x] = aim
        d_out[begin] += aim
        d_into[end] -= aim
        leave[begin] += flow.e[k]
        come[end] += flow.e[k]
        worst = max(worst, abs(slack))
    for k in range(n_nodes - n):
        worst = max(worst, max(abs(leave[k]), abs(come[k + n])))
    return worst


@leaf
def _magnitude(chain: Chain) -> float:
    """Return the largest potential of the used nodes."""
    flow, (_, n_nodes, _) = chain.flow, sizes(chain)
    most = 0.0
    for k in range(n_nodes):
        if flow.used[k] == ON:
            most = max(most, max(abs(flow.out[k]), abs(flow.into[k])))
    return most


@leaf
def _add_edges_to_face(chain: Chain) -> int:
    """Add edges with negative slack to the face, with the paths to them; returns their number.

    The *in* of an unused node is the largest one for which no edge to the node has a negative
    slack. The slack of an edge back to a used node is then that of the best path.
    """
    flow, work, (n, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    least, n_new = -SLACK_ROUNDING * _magnitude(chain), 0
    for k in range(n):
        if flow.used[k] == OFF:
            flow.out[k] = flow.into[k] - work.score[k]
    for first in range(ZERO, n_nodes - n, n):
        for end in range(first + n, first + n + n):
            row, level = (end - n) * n, np.inf
            for i in range(n):
                slack = flow.out[first + i] - work.step[row + i]
                work.slack[row + i] = slack
                level = slack if slack < level else level
            if flow.used[end] == ON:
                level = flow.into[end]
            elif end >= n_nodes - n:
                level = work.score[end]
            else:
                flow.out[end] = level - work.score[end]
            flow.into[end] = level
            for i in range(n):
                work.slack[row + i] -= level
                joins = work.slack[row + i] < least and flow.on[row + i] == OFF
                flow.on[row + i] = NEW if joins else flow.on[row + i]
                n_new += joins
    if n_new > 0:
        _add_paths_to_face(chain, -least)
    return n_new


@leaf
def _add_paths_to_face(chain: Chain, tight: float) -> None:
    """Add the edges of the best paths to the nodes where new edges begin."""
    flow, work, (n, n_nodes, _) = chain.flow, chain.work, sizes(chain)
    for back in range(ONE, np.uint64(chain.length)):
        first = n_nodes - (back + ONE) * n
        for end in range(first + n, first + n + n):
            row = (end - n) * n
            for i in range(n):
                if flow.used[end] == NEW and work.slack[row + i] <= tight:
                    flow.on[row + i] = NEW
                if flow.on[row + i] == NEW:
                    flow.on[row + i] = ON
                    if flow.used[first + i] == OFF:
                        flow.used[first + i] = NEW
