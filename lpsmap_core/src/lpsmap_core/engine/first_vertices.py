"""Where the loop starts without the quadratic term if all factors bound counts: at a best vertex.

LP-MAP is then a linear program of one row a factor, which the dual simplex method solves in few
steps. The loop's duals follow from the rows' multipliers as `lpsmap_core.engine.first_duals` says;
its first iteration confirms them. Where the method gives up, the loop starts from nothing.
"""

from __future__ import annotations

import numpy as np

from lpsmap_core.engine.first_duals import write_start
from lpsmap_core.engine.problem import LoopProblem
from lpsmap_core.engine.selection import Selection
from lpsmap_core.engine.simplex import FOUND, CountProgram, best_vertex
from lpsmap_jit.compile import kernel, leaf

__all__ = ["start_from_vertices"]

MOST_VARIABLES = 2_500
"""Components of more variables are left out: tableaus of them would take long, and much memory."""


@leaf
def seeks_vertices(selection: Selection, problem: LoopProblem) -> bool:
    """Return whether `start_from_vertices` serves a component of a selection."""
    n_served = 0
    for c in selection.components:
        n_served += _is_served(c, problem)
    return n_served > 0


@leaf
def _is_served(c: int, problem: LoopProblem) -> bool:
    """Return whether a component's factors bound counts, and its variables are few enough."""
    variables = problem.blocks.first_variable
    few: bool = variables[c + 1] - variables[c] <= MOST_VARIABLES
    return few and problem.counts.covered[c]


@kernel
def start_from_vertices(selection: Selection, problem: LoopProblem) -> None:
    """Write the means and duals of those components of a selection that bound counts."""
    counts, progress, links = problem.counts, problem.progress, problem.links
    first, variables = counts.first, problem.blocks.first_variable
    for c in selection.components:
        if not _is_served(c, problem):
            continue
        begin, n = variables[c], variables[c + 1] - variables[c]
        eta = np.empty(n)
        for v in range(n):
            eta[v] = problem.iterate.score[begin + v] * links.root_degree[begin + v]
        rows = slice(first[c], first[c + 1])
        program = CountProgram(
            eta,
            begin,
            counts.variable,
            counts.negated,
            counts.begin[rows],
            counts.end[rows],
            counts.low[rows],
            counts.high[rows],
        )
        x, y = np.empty(n), np.empty(len(program.low))
        if best_vertex(program, x, y) == FOUND:
            write_start(np.uint64(begin), np.uint64(begin + n), x, y, problem)
            progress.warm[c] = progress.stale[c] = True
