"""Forests: faces of a chain's flows whose edges form no cycle between two layers.

A chain has L layers of S nodes, with a slot for each node, and edges between the nodes of adjacent
layers. A structure is a path. Let the nodes have marginals ``m = delta z``, weights ``w = delta^2``
and scores c, and the edges flows e and scores t. The local problem is

    minimise  sum m^2 / (2 w) - <c, m> - <t, e>
    such that the inflow and the outflow of a node equal its m, sum m = 1 in the first layer,
              e >= 0

Let *in* and *out* be the multipliers of a node. Then ``m = w (c + out - in)``, and the slack of an
edge is ``out - in - t >= 0``, with the *out* of its first and the *in* of its second node. All *in*
of the first layer are equal, and all *out* of the last layer are zero.

Between two layers, the best flow with given marginals is a basic solution of a transportation
problem, whose edges form a forest on the nodes of both layers. On a forest, marginals determine the
flows, starting at the leaves. Edges without slack determine the potentials of a tree up to one
number, its *level*. Few equations remain, see `lpsmap_factors_struct.chains.levels`.

Between two layers of S nodes, the nodes of the first layer are the vertices 0 to S - 1, and those
of the second layer are the vertices S to 2 S - 1.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from lpsmap_core import kernel, leaf
from lpsmap_core.api import FloatArray, IndexArray, IntArray

Size = TypeVar("Size", int, IntArray)

FOREST_SOLVED, N_HEADER = 0, 1
"""Positions in `Forest.header`, and its length: whether the flow solves some problem."""

UNUSED, REACHED, USED, NEW = 0, 1, 2, 3
"""Marks of nodes: not reached; reached from the first layer; on a complete path; on a new path."""

ONE = np.uint64(1)
"""Indices are unsigned: for a signed index, numba checks whether it counts from the end."""

LEAVING = -1.0
"""Marks, as its flow, an edge that the next call of `prune_to_paths` removes."""

NO_FLOW = 1e-13
"""Flows up to this are rounding errors. Flows sum to 1."""


class Forest(NamedTuple):
    """The stored solution of a chain: the edges that have a flow.

    Attributes
    ----------
    header
        Properties of the solution: see `FOREST_SOLVED`.
    n_edges
        (L - 1,) numbers of edges between two layers.
    begin, end
        (L - 1, 2 S) for each edge, its vertices.
    flow
        (L - 1, 2 S) the edges' flows.
    """

    header: FloatArray
    n_edges: IndexArray
    begin: IndexArray
    end: IndexArray
    flow: FloatArray


class ForestWorkspace(NamedTuple):
    """Workspace for solving chains up to some size on forests.

    Attributes
    ----------
    score, weight
        (L, S) the nodes' c and w.
    step
        (L - 1, S, S) the edges' t if some are forbidden, by their first nodes; or (S, S) if all
        steps share them.
    out, into, m
        (L, S) potentials and marginals of the used nodes.
    before
        (L, S) minus the smallest *out* for which no path to a node has a negative slack.
    best
        (L, S) the best score of a path to a node, without the node's own.
    gain
        (L, S) the gain of the best path to an end; zero for other nodes.
    lack
        (L, S) the difference between the best path and the best path through a node.
    target
        (L - 1, 2 S) the flows that solve the equations of the face.
    offset
        (L - 1, 2 S) potentials of vertices relative to the level of their tree.
    rest
        (2 S,) the marginal of a vertex that is left for its other edges.
    worst
        (L - 1,) the smallest flow, or the largest gain of a path, between two layers.
    equations, level
        The equations of the levels, and the levels; see `lpsmap_factors_struct.chains.levels`.
    mark
        (L, S) see `USED`.
    n_used, used
        (L,), (L, S) the used nodes.
    order
        (L - 1, 2 S) edges in an order such that each has a leaf: a vertex without later edges. An
        edge x is listed as x if its leaf is its first vertex, and as ``-x - 1`` otherwise.
    parent, rank
        (L - 1, 2 S) for a vertex that is the leaf of an edge, the edge's other vertex and its
        position in the order. For other vertices, -1 and a position after all edges.
    tree
        (L - 1, 2 S) the tree of a vertex, or -1.
    n_trees
        (L,) the number of trees before each layer; for the first layer, 1 for the source. It is 0
        if edges were added or removed since the trees were found.
    first_level
        (L,) the number of trees before those of each layer.
    degree, crossed
        (2 S,) the number of edges of a vertex, and the exclusive or of the edges' numbers, from 1.
    """

    score: FloatArray
    weight: FloatArray
    step: FloatArray
    out: FloatArray
    into: FloatArray
    m: FloatArray
    before: FloatArray
    best: FloatArray
    gain: FloatArray
    lack: FloatArray
    target: FloatArray
    offset: FloatArray
    rest: FloatArray
    worst: FloatArray
    equations: FloatArray
    level: FloatArray
    mark: IndexArray
    n_used: IndexArray
    used: IndexArray
    order: IndexArray
    parent: IndexArray
    rank: IndexArray
    tree: IndexArray
    n_trees: IndexArray
    first_level: IndexArray
    degree: IndexArray
    crossed: IndexArray


class ForestChain(NamedTuple):
    """A chain with its forest and a workspace.

    The scores of its edges begin at position `first` of `steps`, and those of later layers follow
    in distances of `stride`, which is 0 if all layers share them. If `steps` is empty, all scores
    are zero.
    """

    length: int
    n_states: int
    forest: Forest
    work: ForestWorkspace
    steps: FloatArray
    first: int
    stride: int


def forest_size(length: Size, n_states: Size) -> Size:
    """Return the number of 64-bit words of a `Forest`."""
    return N_HEADER + (length - 1) * (1 + 4 * n_states)


@kernel
def unpack_forest(block: FloatArray, length: int, n_states: int) -> Forest:
    """Return the arrays of a forest stored in `block`."""
    begin, size = N_HEADER + length - 1, (length - 1) * n_states
    end, flow = begin + size, begin + 2 * size
    return Forest(
        block[:N_HEADER],
        block[N_HEADER:begin].view(np.int32),
        block[begin:end].view(np.int32),
        block[end:flow].view(np.int32),
        block[flow : flow + 2 * size],
    )


@kernel
def forest_workspace(length: int, n_states: int, n_steps: int) -> ForestWorkspace:
    """Return a workspace for chains up to this size, with `n_steps` scores of edges."""
    n, vertices = length * n_states, 2 * length * n_states
    nodes, edges = np.empty((10, n)), np.empty((2, vertices))
    marks, lists = np.empty((2, n), dtype=np.int32), np.empty((4, vertices), dtype=np.int32)
    layers, both = (
        np.empty((3, length), dtype=np.int32),
        np.empty((2, 2 * n_states), dtype=np.int32),
    )
    return ForestWorkspace(
        nodes[0],
        nodes[1],
        np.empty(n_steps),
        nodes[2],
        nodes[3],
        nodes[4],
        nodes[5],
        nodes[6],
        nodes[7],
        nodes[8],
        edges[0],
        edges[1],
        np.empty(2 * n_states),
        np.empty(length),
        np.empty((n + 1) * 2 * n_states),
        nodes[9],
        marks[0],
        layers[0],
        marks[1],
        lists[0],
        lists[1],
        lists[2],
        lists[3],
        layers[1],
        layers[2],
        both[0],
        both[1],
    )


# -------------------------------------------------------------------- nodes


@leaf
def prune_to_paths(chain: ForestChain) -> bool:
    """Remove the edges that are not on complete paths, and list the used nodes.

    The loops over edges and nodes have no branches, which would often be mispredicted. Returns
    false if no path is left.
    """
    if not _mark_reached(chain):
        return False
    forest, work, n = chain.forest, chain.work, np.uint64(chain.n_states)
    begin, end, flow, mark, used = forest.begin, forest.end, forest.flow, work.mark, work.used
    for t in range(chain.length - 2, -1, -1):
        here = np.uint64(t) * n
        row = kept = here + here
        for x in range(row, row + np.uint64(forest.n_edges[t])):
            i, j = here + np.uint64(begin[x]), here + np.uint64(end[x])
            whole = (mark[i] != UNUSED) & (mark[j] == USED) & (flow[x] != LEAVING)
            mark[i] = USED if whole else mark[i]
            begin[kept], end[kept], flow[kept] = begin[x], end[x], flow[x]
            kept += np.uint64(whole)
        if np.uint64(forest.n_edges[t]) > kept - row:
            work.n_trees[t + 1] = 0
            forest.n_edges[t] = kept - row
    for t in range(chain.length):
        first = np.uint64(t) * n
        last = first
        for state in range(n):
            used[last] = state
            last += np.uint64(mark[first + np.uint64(state)] == USED)
        work.n_used[t] = last - first
    return True


@leaf
def _mark_reached(chain: ForestChain) -> bool:
    """Mark the nodes with paths from the first layer; returns whether the last layer has one.

    If the leaving edges would break all paths, all but one of those in the last steps before the
    break stay. The number of steps doubles until a path is left. Other parts of the chain are not
    affected.
    """
    mark, n, steps = chain.work.mark, np.uint64(chain.n_states), chain.length - 1
    for k in range(n):
        mark[k] = REACHED
    t, broken, near = 0, -1, 1
    while t < steps:
        if _mark_next_layer(t, chain):
            t += 1
            continue
        near = 2 * near if t == broken else 1
        first = max(0, t + 1 - near)
        if _release_all_but_one(first, t, chain) == 0 and first == 0:
            return False
        t, broken = first, t
    last = np.uint64(steps) * n
    for k in range(last, last + n):
        mark[k] = USED if mark[k] == REACHED else UNUSED
    return True


@leaf
def _mark_next_layer(t: int, chain: ForestChain) -> bool:
    """Mark the nodes of the next layer that remaining edges reach; returns whether any exist."""
    forest, mark, n = chain.forest, chain.work.mark, np.uint64(chain.n_states)
    begin, end, flow = forest.begin, forest.end, forest.flow
    here, reached = np.uint64(t) * n, False
    row = here + here
    for k in range(here + n, here + n + n):
        mark[k] = UNUSED
    for x in range(row, row + np.uint64(forest.n_edges[t])):
        i, j = here + np.uint64(begin[x]), here + np.uint64(end[x])
        leads = (mark[i] == REACHED) & (flow[x] != LEAVING)
        mark[j] = REACHED if leads else mark[j]
        reached |= leads
    return reached


@leaf
def _release_all_but_one(first: int, last: int, chain: ForestChain) -> int:
    """Let only the edge of smallest flow leave in a range of steps; returns how many edges stay.

    That edge is not on all paths, since its flow would be 1.
    """
    forest, target, n = chain.forest, chain.work.target, chain.n_states
    least, leaving, stay = 0.0, -1, 0
    for t in range(first, last + 1):
        for x in range(t * 2 * n, t * 2 * n + forest.n_edges[t]):
            if forest.flow[x] == LEAVING:
                leaving = x if target[x] < least else leaving
                least = min(least, target[x])
                forest.flow[x] = 0.0
                stay += 1
    if leaving >= 0:
        forest.flow[leaving] = LEAVING
        stay -= 1
    return stay


# -------------------------------------------------------------------- trees


@leaf
def find_trees(chain: ForestChain) -> bool:
    """Find trees and offsets where edges were added or removed; false if there is a cycle."""
    work = chain.work
    work.n_trees[0] = 1
    for t in range(chain.length - 1):
        if work.n_trees[t + 1] > 0:
            continue
        if not _order_edges(t, chain):
            return False
        work.n_trees[t + 1] = _write_offsets(t, chain)
    return True


@leaf
def _order_edges(t: int, chain: ForestChain) -> bool:
    """Order the edges between two layers, leaves first; false if there is a cycle."""
    forest, work, vertices = chain.forest, chain.work, np.uint64(2 * chain.n_states)
    begin, end, degree, crossed = forest.begin, forest.end, work.degree, work.crossed
    row, placed, count = np.uint64(t) * vertices, np.uint64(0), np.uint64(forest.n_edges[t])
    degree[:vertices] = 0
    crossed[:vertices] = 0
    work.tree[row : row + vertices] = -1
    work.parent[row : row + vertices] = -1
    work.rank[row : row + vertices] = vertices
    for x in range(row, row + count):
        i, j, number = np.uint64(begin[x]), np.uint64(end[x]), np.int32(x - row) + 1
        degree[i] += 1
        degree[j] += 1
        crossed[i] ^= number
        crossed[j] ^= number
    for x in range(row, row + count):
        placed = _order_leaves(np.uint64(begin[x]), row, placed, chain)
        placed = _order_leaves(np.uint64(end[x]), row, placed, chain)
    return bool(placed == count)


@leaf
def _order_leaves(v: np.uint64, row: np.uint64, placed: np.uint64, chain: ForestChain) -> np.uint64:
    """Append the edge of a leaf to the order, and go on while the other vertex becomes a leaf.

    Returns the number of ordered edges.
    """
    forest, work, n = chain.forest, chain.work, np.uint64(chain.n_states)
    degree, crossed = work.degree, work.crossed
    while degree[v] == 1:
        number = crossed[v]
        x, begins = row + np.uint64(number) - ONE, v < n
        other = np.uint64(forest.end[x]) if begins else np.uint64(forest.begin[x])
        work.order[row + placed] = number - 1 if begins else -number
        work.parent[row + v], work.rank[row + v] = other, placed
        degree[v] = 0
        degree[other] -= 1
        crossed[other] ^= number
        placed += ONE
        v = other
    return placed


@leaf
def _write_offsets(t: int, chain: ForestChain) -> int:
    """Write offsets and trees of the vertices between two layers; return the number of trees."""
    forest, work, n, steps = chain.forest, chain.work, np.uint64(chain.n_states), chain.steps
    tree, offset, row, n_trees = work.tree, work.offset, np.uint64(t) * (n + n), 0
    first = np.uint64(chain.first + t * chain.stride)
    for y in range(forest.n_edges[t] - 1, -1, -1):
        x = work.order[row + np.uint64(y)]
        begins = x >= 0
        edge = row + np.uint64(x if begins else -x - 1)
        i, j = np.uint64(forest.begin[edge]), np.uint64(forest.end[edge])
        v, root = (row + i, row + j) if begins else (row + j, row + i)
        step = steps[first + i * n + j - n] if len(steps) > 0 else 0.0
        if tree[root] < 0:
            tree[root], offset[root] = n_trees, 0.0
            n_trees += 1
        tree[v] = tree[root]
        offset[v] = offset[root] + (step if begins else -step)
    return n_trees


# -------------------------------------------------------------------- new edges


@leaf
def unite_trees(t: int, i: int, j: int, chain: ForestChain) -> bool:
    """Merge the trees of two states between two layers; false if they are the same."""
    tree, vertices = chain.work.tree, np.uint64(2 * chain.n_states)
    row = np.uint64(t) * vertices
    v, w = row + np.uint64(i), row + np.uint64(chain.n_states + j)
    one, other = tree[v], tree[w]
    if one == other and one >= 0:
        return False
    if one >= 0 and other >= 0:
        for k in range(row, row + vertices):
            tree[k] = one if tree[k] == other else tree[k]
        return True
    joint = max(one, other)
    tree[v] = tree[w] = joint if joint >= 0 else 2 * chain.n_states + i  # a tree of its own
    return True


@leaf
def append_edge(t: int, i: int, j: int, flow: float, chain: ForestChain) -> None:
    """Add the edge of two states."""
    forest, n = chain.forest, chain.n_states
    x = np.uint64(t * 2 * n + forest.n_edges[t])
    forest.begin[x], forest.end[x], forest.flow[x] = i, n + j, flow
    forest.n_edges[t] += 1
