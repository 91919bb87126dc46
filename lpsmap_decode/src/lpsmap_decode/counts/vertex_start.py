"""A start of LP-MAP at optimal vertices, for components whose factors all bound counts.

LP-MAP is then a linear program with one row per factor, which the dual simplex method solves in few
pivots. The multipliers of its rows are duals for core's loop, whose first iteration confirms them.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core import Start, kernel
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Links, Part
from lpsmap_decode.counts.simplex import FOUND, CountProgram, best_vertex
from lpsmap_dynamic import Counts, counts_of, write_point

__all__ = ["VertexStart"]

MAX_VARIABLES = 2_500
"""Larger components are left out: their tableaus would take too much time and memory."""


class VertexStart(Start):
    """The dual simplex method where all factors of a component bound counts.

    If the method gives up, core's loop starts as for other components.
    """

    name = "vertex"
    linear = True

    def serves(self, part: Part) -> BoolArray | None:
        """Return the components of count constraints with few enough variables."""
        return part.derived(_served_components)

    def find(
        self,
        part: Part,
        components: IntArray,
        score: FloatArray,
        tolerance: FloatArray,
        u: FloatArray,
        duals: FloatArray,
    ) -> BoolArray:
        """Write the means and duals of optimal vertices; see `Start.find`."""
        found = np.zeros(len(components), dtype=np.bool_)
        point = score, u, duals, found
        _start(components, part.first_variable, part.links, counts_of(part), *point)
        return found


def _served_components(part: Part) -> BoolArray | None:
    """Compute `VertexStart.serves`."""
    covered: BoolArray = counts_of(part).covered
    if not covered.any():
        return None
    return covered & (np.diff(part.first_variable) <= MAX_VARIABLES)


@kernel
def _start(
    components: IntArray,
    variables: IntArray,
    links: Links,
    counts: Counts,
    score: FloatArray,
    u: FloatArray,
    duals: FloatArray,
    found: BoolArray,
) -> None:
    """Write the starting points of components, and mark in `found` which have one."""
    for i in range(len(components)):
        c = components[i]
        first, last = variables[c], variables[c + 1]
        rows = slice(counts.first[c], counts.first[c + 1])
        program = CountProgram(
            score[first:last] * links.root_degree[first:last],
            first,
            counts.variable,
            counts.negated,
            counts.begin[rows],
            counts.end[rows],
            counts.low[rows],
            counts.high[rows],
        )
        x, y = np.zeros(last - first), np.zeros(len(program.low))
        found[i] = best_vertex(program, x, y) == FOUND
        if found[i]:
            write_point(np.uint64(first), x, y, links, counts.number, u, duals)
