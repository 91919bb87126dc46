"""Large-neighbourhood search: free some variables of the best assignment, and search them anew.

The neighbourhood grows from a random variable along rows (Shaw 1998). A neighbourhood that is
searched completely makes the next ones larger, one that is not makes them smaller.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lpsmap_core.api import IntArray, ranges
from lpsmap_decode.heuristics.completion import least_gain, search_columns
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.propagation import OPEN, fix_all, new_domain
from lpsmap_decode.heuristics.rows import restricted
from lpsmap_decode.heuristics.tree_search import EXHAUSTED

__all__ = ["search_neighbourhoods"]

FIRST, GROWTH = 12.0, 1.1
"""Free variables at first, and how their number grows or shrinks."""

MAX_DEAD_ENDS = 300
"""Maximum number of dead ends of a search."""


def search_neighbourhoods(component: Component) -> Iterator[None]:
    """Improve the best assignment, which is known; yield after every neighbourhood."""
    rows, rng, size = component.rows, np.random.default_rng(0), FIRST
    n, row = component.part.n_variables, np.repeat(np.arange(len(rows.low)), np.diff(rows.first))
    score = np.nan
    while not component.exhausted:
        if component.score != score:
            score, values = component.score, component.values
            terms = rows.coefficient * values[rows.column]
            sums = np.bincount(row, terms, len(rows.low)).astype(np.float64)
            rows.low[-1] = sums[-1] + least_gain(component)
        free = _neighbourhood(component, int(size), rng)
        part = restricted(rows, values, sums, free)
        domain, weight = new_domain(part), np.ones(len(part.low))
        fixed = np.where(component.forbidden[free], 0, OPEN).astype(np.int8)
        fix_all(part, domain, fixed)
        guide = component.gains[free] * rng.uniform(0.5, 1.5, len(free))
        by_need = bool(rng.random() < 0.5)
        given = guide, weight, by_need, MAX_DEAD_ENDS
        outcome, best, _ = search_columns(component, part, domain, *given)
        size = min(float(n), size * GROWTH) if outcome == EXHAUSTED else max(2.0, size / GROWTH)
        if best is not None:
            values = values.copy()
            values[free] = best
            component.offer(values[:n] > 0.5)
        yield


def _neighbourhood(component: Component, size: int, rng: np.random.Generator) -> IntArray:
    """Return about `size` variables near each other: those of rows through a random one."""
    rows, n = component.rows, component.part.n_variables
    free = np.zeros(len(component.gains), dtype=bool)
    frontier = [int(rng.integers(n))]
    free[frontier] = True
    count = 1
    while frontier and count < size:
        column = frontier.pop(int(rng.integers(len(frontier))))
        own = rows.row[slice(*rows.first_of_column[column : column + 2])]
        own = own[own < len(rows.low) - 1]
        for r in rng.permutation(own)[:2].tolist():
            others = rows.column[slice(*rows.first[r : r + 2])]
            others = others[others < n]
            some = rng.permutation(others)[: max(2, size // 3)]
            some = some[~free[some]]
            free[some] = True
            frontier += some.tolist()
            count += len(some)
    if len(component.eta_v):  # additionals that share a row with them
        own = np.unique(rows.row[ranges(rows.first_of_column, np.flatnonzero(free[:n]))])
        others = rows.column[ranges(rows.first, own[own < len(rows.low) - 1])]
        free[others[others >= n]] = True
    return np.flatnonzero(free)
