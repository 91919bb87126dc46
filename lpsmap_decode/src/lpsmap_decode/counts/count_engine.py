"""The engine for count constraints, for LP-MAP: core's engine, started at optimal vertices."""

from __future__ import annotations

import numpy as np

from lpsmap_core import CompiledEngine, Engine, Options, SolvedGraph, leaf
from lpsmap_core.api import (
    BoolArray,
    Counts,
    FloatArray,
    IntArray,
    Links,
    Part,
    WarmStart,
    first_step_sizes,
    in_shares,
)
from lpsmap_decode.counts.simplex import CountProgram, best_vertices

__all__ = ["CountEngine"]

MOST_VARIABLES = 2_500
"""Larger components are left out: their tableaus would take too much time and memory."""


class CountEngine(Engine):
    """The dual simplex method where all factors of a component bound counts.

    LP-MAP is then a linear program with one row per factor, which takes few pivots. The multipliers
    of its rows are duals for core's engine, whose first iteration confirms them. If the method
    gives up, core's engine starts cold.
    """

    name = "counts"
    needs_no_start = True

    def prefers(self, part: Part, options: Options) -> BoolArray | None:
        """Prefer components of count constraints with few enough variables, for LP-MAP."""
        if options.quadratic or not options.adapt:
            return None
        covered: BoolArray = part.counts.record.covered
        return covered & (np.diff(part.first_variable) <= MOST_VARIABLES)

    def refuses(self, part: Part, options: Options) -> str | None:
        """Return why the engine cannot solve a part with these options, or None."""
        if options.quadratic:
            return "engine: 'counts' solves LP-MAP, without the quadratic term; use 'auto'."
        return CompiledEngine().refuses(part, options)

    def solve(
        self,
        part: Part,
        eta: FloatArray,
        eta_v: FloatArray,
        skip: BoolArray,
        options: Options,
        warm: WarmStart | None = None,
    ) -> SolvedGraph:
        """Solve a part from optimal vertices; see `Engine.solve`. The given start is ignored."""
        preferred = self.prefers(part, options)
        if preferred is not None:
            warm = _start_at_vertices(part, eta, preferred & ~skip, options)
        return CompiledEngine().solve(part, eta, eta_v, skip, options, warm)


def _start_at_vertices(
    part: Part, eta: FloatArray, chosen: BoolArray, options: Options
) -> WarmStart:
    """Return the means and duals of optimal vertices of the `chosen` components."""
    counts = part.counts.record
    rows = counts.begin, counts.end, counts.low, counts.high
    program = CountProgram(eta, 0, counts.variable, counts.negated, *rows)
    x, y = np.zeros(part.n_variables), np.zeros(len(counts.low))
    found = np.zeros(part.n_components, dtype=bool)

    def find(components: IntArray) -> None:
        best_vertices(program, components, part.first_variable, counts.first, x, y, found)

    components = np.flatnonzero(chosen)
    in_shares(find, components, part.sizes[components], options.threads)
    duals = np.empty(part.n_links)
    _write_duals(y, counts, part.links, duals)
    step_size = first_step_sizes(part.first_variable, ~chosen, eta, options)
    return WarmStart(x / part.root_degree, duals, step_size, found)


@leaf
def _write_duals(y: FloatArray, counts: Counts, links: Links, duals: FloatArray) -> None:
    """Write the duals that correspond to row multipliers, in the order of the variables.

    The duals of variable v are ``root_degree[v]`` times the signed multipliers of its rows, minus
    their mean.
    """
    for v in range(len(links.component)):
        begin, end, total = links.offsets[v], links.offsets[v + 1], 0.0
        first = counts.first[links.component[v]]
        for e in range(begin, end):
            multiplier = y[first + np.int64(counts.number[e])]
            duals[e] = -multiplier if links.negated[e] else multiplier
            total += duals[e]
        mean = total / (end - begin)
        for e in range(begin, end):
            duals[e] = links.root_degree[v] * (duals[e] - mean)
