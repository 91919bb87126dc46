"""Where a solve starts from: multipliers, means and step sizes of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpsmap_core.layout import Layout, Part, ranges
from lpsmap_core.state import PartState, WarmStart

__all__ = ["GraphStart"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GraphStart:
    """Where the loop starts in every component of a graph; see `lpsmap_core.state.WarmStart`.

    Attributes
    ----------
    u
        (n_variables,) scaled means, in the order of the graph.
    dual
        (n_links,) one a slot, bucket by bucket of the graph's layout.
    gamma
        (n_components,) step sizes.
    known
        (n_components,) whether there is a start for the component.
    """

    u: FloatArray
    dual: FloatArray
    gamma: FloatArray
    known: BoolArray

    @classmethod
    def of_states(cls, layout: Layout, states: Sequence[PartState]) -> GraphStart:
        """Return where a solve ended."""
        n_links = sum(bucket.n_links for bucket in layout.buckets)
        n = layout.n_components
        start = cls(np.zeros(layout.n_variables), np.zeros(n_links), np.zeros(n), np.ones(n, bool))
        for state in states:
            part, iterate = state.part, state.problem.iterate
            start.u[part.variables] = iterate.u
            start.dual[_links_in_graph(layout, part)[part.variable_links]] = iterate.dual
            start.gamma[part.components] = state.problem.progress.gamma
            start.known[part.components] = ~state.problem.progress.infeasible
        return start

    def of_part(self, layout: Layout, part: Part) -> WarmStart:
        """Return the start of a part of the graph."""
        dual = self.dual[_links_in_graph(layout, part)[part.variable_links]]
        components = part.components
        return WarmStart(
            self.u[part.variables], dual, self.gamma[components], self.known[components]
        )


def _links_in_graph(layout: Layout, part: Part) -> IntArray:
    """Return for each link of a part its place among those of the whole graph."""
    places, first = [], 0
    mine = {bucket.type: bucket for bucket in part.buckets}
    for bucket in layout.buckets:
        if bucket.type in mine:
            some = mine[bucket.type]
            begin = np.concatenate([[0], np.cumsum([d.n_factors for d in bucket.declarations])])
            places.append(first + ranges(bucket.offsets, begin[some.declaration] + some.row))
        first += bucket.n_links
    return np.concatenate(places)
