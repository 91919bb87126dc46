"""Paths through a directed acyclic graph: MAP oracles by networkx and as a kernel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, FactorGraph, Factors, Scores, Structures, Variables, kernel

__all__ = ["DagPath"]

IntArray = npt.NDArray[np.int64]
Node = Hashable
Edge = tuple[Node, Node]


class DagPath(Factor):
    """The edges of one path from a source to a target through a directed acyclic graph.

    Parameters
    ----------
    variables
        Variables of shape (..., n_edges): a path for every entry of the leading axes.
    edges
        The graph's edges, pairs of nodes, in the order of the variables' last axis.
    source, target
        The first and the last node of every path.

    Raises
    ------
    ValueError
        If edges and variables differ in number, an edge is listed twice, the graph has a cycle, or
        no path leads from source to target.
    """

    def __init__(
        self, variables: Variables, edges: Sequence[Edge], source: Node, target: Node
    ) -> None:
        super().__init__(variables)
        self.dag = nx.DiGraph()
        for i, (tail, head) in enumerate(edges):
            self.dag.add_edge(tail, head, number=i)
        if self.event_shape != (self.dag.number_of_edges(),):
            raise ValueError(
                f"DagPath: edges has {self.dag.number_of_edges()} different edges for "
                f"{self.event_shape[0]} variables; expected one for each. List every edge once."
            )
        if not nx.is_directed_acyclic_graph(self.dag):
            raise ValueError("DagPath: edges has a cycle; expected none. Remove one of its edges.")
        if not (source in self.dag and target in nx.descendants(self.dag, source)):
            raise ValueError(
                f"DagPath: no path leads from {source!r} to {target!r}; expected one. Add edges."
            )
        self.source, self.target = source, target
        self.steps = self.integers("steps", self._sorted_edges())

    def _sorted_edges(self) -> list[tuple[int, int, int]]:
        """Return tail, head and number of every edge on a path, with nodes in topological order."""
        nodes = {*nx.descendants(self.dag, self.source), self.source}
        nodes &= {*nx.ancestors(self.dag, self.target), self.target}
        order = {n: i for i, n in enumerate(nx.topological_sort(self.dag.subgraph(nodes)))}
        edges = self.dag.subgraph(nodes).edges(data="number")
        return sorted((order[tail], order[head], number) for tail, head, number in edges)

    def solve_map(self, eta_u: Any, eta_v: Any) -> tuple[int, ...]:
        """Return the numbers of the best path's edges, from first to last."""

        def length(tail: Node, head: Node, data: dict[str, int]) -> float:
            return -float(eta_u[data["number"]])  # so that the best path is the shortest

        nodes = nx.bellman_ford_path(self.dag, self.source, self.target, weight=length)
        return tuple(self.dag.edges[edge]["number"] for edge in nx.utils.pairwise(nodes))

    def vertex(self, y: tuple[int, ...]) -> tuple[Any, Any]:
        """Return ones on the path's edges, and no additionals."""
        return np.isin(np.arange(*self.event_shape), y), np.empty(0)

    def decode(self, variables: Any, additionals: Any) -> dict[str, Any]:
        """Return the path's nodes, ``{"nodes": [...]}``."""
        on = [edge for edge in self.dag.edges if variables[self.dag.edges[edge]["number"]]]
        follow = dict(on)
        nodes = [self.source]
        while nodes[-1] != self.target:
            nodes.append(follow[nodes[-1]])
        return {"nodes": nodes}

    @classmethod
    def examples(cls) -> list[Factor]:
        """Return small declarations for the conformance kit."""
        graph = FactorGraph()
        diamond = [("s", "a"), ("s", "b"), ("a", "b"), ("a", "t"), ("b", "t")]
        ladder = [(i, j) for i in range(5) for j in range(i + 1, min(i + 3, 5))]
        return [
            cls(graph.variable(5), diamond, "s", "t"),
            cls(graph.variable((2, 7)), ladder, 0, 4),
        ]


@kernel
def _best_paths(rows: IntArray, factors: Factors, scores: Scores, structures: Structures) -> None:
    """Find the best path of every factor in `rows`, in one pass over its sorted edges."""
    integers, ranges = factors.integers, factors.integer_ranges
    start, entry, value, size = structures
    n_nodes = 0
    for r in rows:
        n_nodes = max(n_nodes, integers[ranges[r, 1] - 2] + 1)  # the last head is the target
    best, last_step = np.empty(n_nodes), np.empty(n_nodes, dtype=np.int64)
    for r in rows:
        first, begin, end = factors.offsets[r], ranges[r, 0], ranges[r, 1]
        best[:] = -np.inf
        best[0] = 0.0  # the source
        for step in range(begin, end, 3):
            tail, head, number = integers[step], integers[step + 1], integers[step + 2]
            score = best[tail] + scores.eta_u[first + number]
            if score > best[head]:
                best[head], last_step[head] = score, step
        node, at = integers[end - 2], start[r]
        while node > 0:  # backwards: the order of entries does not matter
            entry[at], value[at] = integers[last_step[node] + 2], 1.0
            node = integers[last_step[node]]
            at += 1
        size[r] = at - start[r]


DagPath.map_kernel = staticmethod(_best_paths)
