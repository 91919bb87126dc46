"""Decomposition of a flow into a distribution over paths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IndexArray, IntArray, Vertices
from lpsmap_factors_struct.chains.forest import NO_FLOW, unpack_forest
from lpsmap_factors_struct.viterbi import write_path

INITIAL_PATHS = 64
"""Initial capacity for paths."""

MAX_POSITIONS = 2**25
"""Maximum number of positions of a chain's listed paths: about a gigabyte of structures, and a few
seconds. The flow of a long chain takes one path for every few positions."""


class FlowEdges(NamedTuple):
    """Edges with a flow, by layers: the states at both ends, and the flows.

    The edges of step t have the numbers ``first[t]`` to ``first[t + 1] - 1``.
    """

    first: IntArray
    begin: IntArray
    end: IntArray
    flow: FloatArray


@kernel
def forest_edges(block: FloatArray, length: int, n_states: int) -> FlowEdges:
    """Return the edges of a chain's forest that have a flow."""
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
    """Return arrays for up to `n_edges` edges."""
    first = np.zeros(length, dtype=np.int64)
    begin, end = np.empty(n_edges, dtype=np.int64), np.empty(n_edges, dtype=np.int64)
    return FlowEdges(first, begin, end, np.empty(n_edges))


def n_paths(edges: FlowEdges, length: int, n_states: int) -> int:
    """Return the largest number of paths of a flow: the dimension of its paths plus 1."""
    step = np.repeat(np.arange(length - 1), np.diff(edges.first))
    n_edges = len(step)
    begins = np.unique(step * n_states + edges.begin[:n_edges])
    ends = np.unique(step * n_states + edges.end[:n_edges])
    inner = np.union1d(begins[begins >= n_states], ends[ends < (length - 2) * n_states] + n_states)
    return n_edges - len(inner)


def read_paths(
    edges: FlowEdges, factor: int, length: int, n_states: int, n_additionals: int
) -> Vertices:
    """Return paths whose flows sum to a chain's flow, the widest first.

    Parameters
    ----------
    edges
        The edges with the chain's flow, which are modified.
    factor
        Number of the chain.
    length, n_states, n_additionals
        Numbers of layers, of states in each, and of additionals.
    """
    paths, weight = _decompose(edges, length, n_states)
    n = len(paths)
    first, largest = np.zeros(n + 1, dtype=np.int64), n * (2 * length + 1)
    entry, value = np.empty(largest, dtype=np.int32), np.empty(largest)
    _write_paths(paths.reshape(-1), length, n_states, n_additionals, first, entry, value)
    probability, end = weight / weight.sum(), first[-1]
    entries = entry[:end].astype(np.int64)
    return Vertices(np.full(n, factor), probability, first, entries, value[:end])


@kernel
def _write_paths(
    paths: IntArray,
    length: int,
    n_states: int,
    n_additionals: int,
    first: IntArray,
    entry: IndexArray,
    value: FloatArray,
) -> None:
    """Write the nonzeros of paths one after the other, and where those of each begin."""
    counts = np.zeros(n_states * n_states)
    for k in range(len(first) - 1):
        path, at = paths[k * length : (k + 1) * length], first[k]
        size = write_path(path, length, n_states, n_additionals, at, entry, value, counts)
        first[k + 1] = at + size


@kernel
def _decompose(edges: FlowEdges, length: int, n_states: int) -> tuple[IntArray, FloatArray]:
    """Subtract widest paths until no flow is left; return their states by layer, and widths."""
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
    """Write the path with the largest smallest flow, subtract that flow, and return it."""
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
