"""The distribution over paths that makes a flow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IntArray, Vertices
from lpsmap_factors_struct.flows.chain import NO_FLOW, chain_workspace, unpack_flow
from lpsmap_factors_struct.flows.forest import unpack_forest

__all__ = ["MAX_POSITIONS", "FlowEdges", "flow_edges", "forest_edges", "n_paths", "read_paths"]

INITIAL_PATHS = 64
"""Paths that there is room for at first."""

MAX_POSITIONS = 2**25
"""Positions of all paths that are listed of a chain: about a gigabyte of structures, and a few
seconds. A long chain's flow takes a path for every few positions, and each has all positions."""


class FlowEdges(NamedTuple):
    """Edges with a flow, by the layers where they begin: states at both ends, and flows.

    Those of step t are number ``first[t]`` to ``first[t + 1] - 1``.
    """

    first: IntArray
    begin: IntArray
    end: IntArray
    flow: FloatArray


@kernel
def flow_edges(block: FloatArray, length: int, n_states: int) -> FlowEdges:
    """Return the edges that have a flow, of all edges of a chain."""
    flow = unpack_flow(block, length, n_states, chain_workspace(1, n_states)).e
    edges, n = _empty_edges(length, len(flow)), 0
    for k in range(len(flow)):
        step, end, begin = k // (n_states * n_states), (k // n_states) % n_states, k % n_states
        if flow[k] > 0.0:
            edges.begin[n], edges.end[n], edges.flow[n] = begin, end, flow[k]
            n += 1
        edges.first[step + 1] = n
    return edges


@kernel
def forest_edges(block: FloatArray, length: int, n_states: int) -> FlowEdges:
    """Return the edges that have a flow, of a chain's forest."""
    forest = unpack_forest(block, length, n_states)
    edges, n = _empty_edges(length, len(forest.flow)), 0
    for t in range(length - 1):
        for x in range(t * 2 * n_states, t * 2 * n_states + forest.n_edges[t]):
            if forest.flow[x] > 0.0:
                edges.begin[n], edges.end[n] = forest.begin[x], forest.end[x] - n_states
                edges.flow[n] = forest.flow[x]
                n += 1
        edges.first[t + 1] = n
    return edges


@kernel
def _empty_edges(length: int, n_edges: int) -> FlowEdges:
    """Return room for edges."""
    first = np.zeros(length, dtype=np.int64)
    begin, end = np.empty(n_edges, dtype=np.int64), np.empty(n_edges, dtype=np.int64)
    return FlowEdges(first, begin, end, np.empty(n_edges))


def n_paths(edges: FlowEdges, length: int, n_states: int) -> int:
    """Return how many paths make a flow at most: one more than its paths have dimensions."""
    step = np.repeat(np.arange(length - 1), np.diff(edges.first))
    n_edges = len(step)
    begins = np.unique(step * n_states + edges.begin[:n_edges])
    ends = np.unique(step * n_states + edges.end[:n_edges])
    inner = np.union1d(begins[begins >= n_states], ends[ends < (length - 2) * n_states] + n_states)
    return n_edges - len(inner)


def read_paths(
    edges: FlowEdges, factor: int, length: int, n_states: int, n_additionals: int
) -> Vertices:
    """Return paths whose flows add up to a chain's, by the widest first.

    Parameters
    ----------
    edges
        With the chain's flow; they are changed.
    factor
        The chain's number.
    length, n_states, n_additionals
        Its layers, the states in each, and its additionals.
    """
    paths, weight = _decompose(edges, length, n_states)
    steps = np.arange(length)
    arity = length * n_states
    into = arity + n_states + (steps[1:] - 1) * n_states**2
    entry = np.concatenate(
        [
            steps * n_states + paths,
            arity + paths[:, :1],
            into + paths[:, :-1] * n_states + paths[:, 1:],
            arity + n_additionals - n_states + paths[:, -1:],
        ],
        axis=1,
    )
    n, size = entry.shape
    return Vertices(
        np.full(n, factor),
        weight / weight.sum(),
        size * np.arange(n + 1),
        entry.ravel(),
        np.ones(n * size),
    )


@kernel
def _decompose(edges: FlowEdges, length: int, n_states: int) -> tuple[IntArray, FloatArray]:
    """Return paths, states by layer, and how wide each is, until no flow is left."""
    most = edges.first[length - 1] + 1
    paths, weight = np.empty((min(most, INITIAL_PATHS), length), dtype=np.int64), np.empty(most)
    width, source = np.empty(length * n_states), np.empty(length * n_states, dtype=np.int64)
    n = 0
    while n < most:
        if n == len(paths):
            larger = np.empty((min(most, 2 * n), length), dtype=np.int64)
            larger[:n] = paths
            paths = larger
        weight[n] = _subtract_widest_path(edges, length, n_states, width, source, paths[n])
        if weight[n] <= NO_FLOW:
            break
        n += 1
    return paths[:n], weight[:n]


@leaf
def _subtract_widest_path(
    edges: FlowEdges,
    length: int,
    n_states: int,
    width: FloatArray,
    source: IntArray,
    path: IntArray,
) -> float:
    """Write the path whose least flow is largest, and take that from its edges; return it."""
    for k in range(length * n_states):
        width[k] = np.inf if k < n_states else 0.0
    for t in range(length - 1):
        for x in range(edges.first[t], edges.first[t + 1]):
            k = (t + 1) * n_states + edges.end[x]
            least = min(width[t * n_states + edges.begin[x]], edges.flow[x])
            if least > width[k]:
                width[k], source[k] = least, x
    last = (length - 1) * n_states
    path[length - 1] = np.argmax(width[last : last + n_states])
    least = width[last + path[length - 1]]
    if least > NO_FLOW:
        for t in range(length - 1, 0, -1):
            x = source[t * n_states + path[t]]
            path[t - 1] = edges.begin[x]
            edges.flow[x] -= least
    return least  # type: ignore[no-any-return]
