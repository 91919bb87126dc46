"""A chain: its local problem, its solution, and the workspace of its solvers.

A chain has L layers of S nodes, with a slot for each node, and edges between the nodes of adjacent
layers. A structure is a path. Let the nodes have marginals ``m = delta z``, weights ``w = delta^2``
and scores c, and the edges flows e and scores t. The local problem is

    minimise  sum m^2 / (2 w) - <c, m> - <t, e>
    such that the inflow and the outflow of a node equal its m, sum m = 1 in the first layer,
              e >= 0

Let *in* and *out* be the multipliers of a node. Then ``m = w (c + out - in)``, and the slack of an
edge is ``out - in - t >= 0``, with the *out* of its first and the *in* of its second node. The
multipliers are potentials of an electric network, see
`lpsmap_factors_struct.flows.electric_network`. All *in* of the first layer are equal, and all *out*
of the last layer are zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import ByteArray, FloatArray, IntArray
from lpsmap_factors_struct.flows.electric_network import ElectricNetwork

__all__ = [
    "BARRED",
    "DIMENSION",
    "ELIMINATED",
    "FLOW_SOLVED",
    "NO_FLOW",
    "N_ON",
    "SLACK_ROUNDING",
    "Chain",
    "ChainWorkspace",
    "Flow",
    "chain_workspace",
    "flow_size",
    "sizes",
    "unpack_flow",
    "write_marginals",
]

BARRED = 1e200
"""Minus the score of forbidden nodes and edges, and the slack of forbidden edges."""

NO_FLOW = 1e-13
"""Flows up to this are rounding errors. Flows sum to 1."""

SLACK_ROUNDING = 2.0**-46
"""Slacks up to this, relative to the largest potential, are zero."""

ONE = np.uint64(1)


class Flow(NamedTuple):
    """The stored solution of a chain, for warm starts and derivatives.

    Attributes
    ----------
    header
        Properties of the solution: see `ELIMINATED`, `DIMENSION`, `FLOW_SOLVED`, `N_ON`.
    out, into
        (L, S) potentials.
    e
        (L - 1, S, S) flows of the edges, by their second and then by their first node.
    on
        (L - 1, S, S) 1 for the edges of the face, which may have a flow.
    used
        (L, S) 1 for the nodes of these edges.
    weight
        (L, S) the nodes' weights; zero for unused nodes.
    net
        The eliminated network of the face's edges, if `header` says so.
    """

    header: FloatArray
    out: FloatArray
    into: FloatArray
    e: FloatArray
    on: ByteArray
    used: ByteArray
    weight: FloatArray
    net: ElectricNetwork


class ChainWorkspace(NamedTuple):
    """Workspace for solving chains up to some size.

    Attributes
    ----------
    score, weight
        (L, S) the nodes' c and w.
    step
        (L - 1, S, S) the edges' t, by their second and then by their first node.
    slack, inverse, push, conductance
        (L - 1, S, S) slacks of the edges; their reciprocals; target flows; conductances of the
        network.
    edge, begin, end
        Positions of the face's edges, and their first and second nodes. `Flow.header` holds their
        number.
    m, d_out, d_into, to_out, to_into
        (L, S) marginals; changes of the potentials; right-hand sides.
    level_out, level_into
        (L, S) the potentials that were subtracted to reduce the scores.
    square, ground, lane
        See `ElectricNetwork`.
    """

    score: FloatArray
    weight: FloatArray
    step: FloatArray
    slack: FloatArray
    inverse: FloatArray
    push: FloatArray
    conductance: FloatArray
    edge: IntArray
    begin: IntArray
    end: IntArray
    m: FloatArray
    d_out: FloatArray
    d_into: FloatArray
    to_out: FloatArray
    to_into: FloatArray
    level_out: FloatArray
    level_into: FloatArray
    square: FloatArray
    ground: FloatArray
    lane: FloatArray


class Chain(NamedTuple):
    """A chain with its solution and a workspace."""

    length: int
    n_states: int
    flow: Flow
    work: ChainWorkspace


ELIMINATED, DIMENSION, FLOW_SOLVED, N_ON, N_HEADER = 0, 1, 2, 3, 4
"""Positions in `Flow.header`, and its length: whether the network is eliminated, the dimension of
the face of flows, whether the flow solves some problem, and the number of the face's edges."""


def flow_size(length: int, n_states: int) -> int:
    """Return the number of 64-bit words of a `Flow`."""
    n_nodes, n_edges = length * n_states, (length - 1) * n_states * n_states
    bytes_ = (n_nodes + 7) // 8 + (n_edges + 7) // 8
    return N_HEADER + 5 * n_nodes + 4 * n_edges + 1 + bytes_


@kernel
def unpack_flow(block: FloatArray, length: int, n_states: int, work: ChainWorkspace) -> Flow:
    """Return the arrays of a flow stored in `block`; its network uses the caller's workspace."""
    nodes, edges = length * n_states, (length - 1) * n_states * n_states
    out = N_HEADER
    e = out + 2 * nodes
    weight = e + edges
    shares = weight + nodes
    resistance = shares + 3 * edges
    source = resistance + 2 * nodes
    on = source + 1
    used = on + (edges + 7) // 8
    end = used + (nodes + 7) // 8
    net = ElectricNetwork(
        block[shares : shares + 2 * edges],
        block[shares + 2 * edges : resistance],
        block[resistance : resistance + nodes],
        block[resistance + nodes : source],
        block[source:on],
        work.square,
        work.ground,
        work.lane,
    )
    return Flow(
        block[:out],
        block[out : out + nodes],
        block[out + nodes : e],
        block[e:weight],
        block[on:used].view(np.int8),
        block[used:end].view(np.int8),
        block[weight:shares],
        net,
    )


@kernel
def chain_workspace(length: int, n_states: int) -> ChainWorkspace:
    """Return a workspace for chains up to this size."""
    n_nodes, n_edges = length * n_states, (length - 1) * n_states * n_states
    of_nodes, of_edges = np.empty((9, n_nodes)), np.empty((5, n_edges))
    edges = np.empty((3, n_edges), dtype=np.int64)
    return ChainWorkspace(
        of_nodes[0],
        of_nodes[1],
        of_edges[0],
        of_edges[1],
        of_edges[2],
        of_edges[3],
        of_edges[4],
        edges[0],
        edges[1],
        edges[2],
        of_nodes[2],
        of_nodes[3],
        of_nodes[4],
        of_nodes[5],
        of_nodes[6],
        of_nodes[7],
        of_nodes[8],
        np.zeros(4 * n_states * n_states),
        np.empty(2 * n_states + 1),
        np.empty(3 * n_states + 1),
    )


@leaf
def sizes(chain: Chain) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the numbers of states, of nodes and of edges, as unsigned indices."""
    n, length = np.uint64(chain.n_states), np.uint64(chain.length)
    return n, length * n, (length - ONE) * n * n


@leaf
def write_marginals(chain: Chain, weight: FloatArray) -> float:
    """Write ``m = w (c + out - in)``; return the sum of the first layer."""
    flow, work = chain.flow, chain.work
    n, n_nodes, _ = sizes(chain)
    for k in range(n_nodes):
        work.m[k] = weight[k] * (work.score[k] + flow.out[k] - flow.into[k])
    total = 0.0
    for k in range(n):
        total += work.m[k]
    return total
