"""Warm starts: the duals, means, step sizes and active sets of an earlier solve."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lpsmap_core.engine.protocol import SolvedGraph, WarmStart
from lpsmap_core.layout.layout import Layout
from lpsmap_core.layout.ragged import ranges
from lpsmap_jit.arrays import BoolArray, FloatArray, IntArray

__all__ = ["GraphStart"]


@dataclass(frozen=True)
class GraphStart:
    """The starting point of the loop in every component of a graph.

    `lpsmap_core.engine.protocol.WarmStart` is the same for a part.

    Attributes
    ----------
    u
        (n_variables,) scaled means, in the order of the graph.
    duals
        (n_links,) one per slot, in the order of the buckets of the graph's layout.
    step_size, first_step_size
        (n_components,) last and first step sizes.
    known
        (n_components,) whether there is a start for the component.
    solved
        Further state of the engine that ended there, if any.
    """

    u: FloatArray
    duals: FloatArray
    step_size: FloatArray
    first_step_size: FloatArray
    known: BoolArray
    solved: object = None

    @classmethod
    def empty(cls, layout: Layout) -> GraphStart:
        """Return a start without any known component, to be filled in."""
        n_links, n = sum(bucket.n_links for bucket in layout.buckets), layout.n_components
        known = np.zeros(n, dtype=bool)
        step_size, first_step_size = np.zeros((2, n))
        return cls(
            np.zeros(layout.n_variables), np.zeros(n_links), step_size, first_step_size, known
        )

    @classmethod
    def of_solved(cls, layout: Layout, solved: SolvedGraph) -> GraphStart:
        """Return the end of a solve; empty if its engine does not provide it."""
        start, part, end = cls.empty(layout), layout.part, solved.end()
        if end is None:
            return start
        start.u[part.variables] = end.u
        start.duals[_links_in_graph(layout)[part.links.order]] = end.duals
        start.step_size[:], start.first_step_size[:] = end.step_size, end.step_size
        if end.first_step_size is not None:
            start.first_step_size[:] = end.first_step_size
        start.known[:] = end.known
        return replace(start, solved=end.solved)

    def of_part(self, layout: Layout) -> WarmStart:
        """Return the start in the order of the graph's part."""
        duals = self.duals[_links_in_graph(layout)[layout.part.links.order]]
        u = self.u[layout.part.variables]
        return WarmStart(u, duals, self.step_size, self.known, self.first_step_size, self.solved)


def _links_in_graph(layout: Layout) -> IntArray:
    """Return the number in the graph of each link of its part."""
    places, first = [np.empty(0, dtype=np.int64)], 0
    mine = {(bucket.type, bucket.generic): bucket for bucket in layout.part.buckets}
    for bucket in layout.buckets:
        some = mine.get((bucket.type, bucket.generic))
        if some is not None:
            begin = np.concatenate([[0], np.cumsum([d.n_factors for d in bucket.declarations])])
            places.append(first + ranges(bucket.offsets, begin[some.declaration] + some.row))
        first += bucket.n_links
    return np.concatenate(places)
