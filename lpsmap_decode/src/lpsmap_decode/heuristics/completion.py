"""Complete an assignment column by column: the plainest heuristic.

The columns follow the marginals, or the scores. The searches are short, and become longer; weights
of rows pass from one to the next. Where rows do not describe all factors, the factors may refuse
what is found, but rows that no assignment meets are a proof all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lpsmap_core.api import ByteArray, FloatArray
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.propagation import OPEN, Domain
from lpsmap_decode.heuristics.rows import Rows
from lpsmap_decode.heuristics.tree_search import EXHAUSTED, complete

__all__ = ["complete_columns", "least_gain", "search_columns"]

FIRST_DEAD_ENDS, GROWTH = 100, 1.5
"""Dead ends of the first search, and how this limit grows."""

NOISE = 0.3
"""Noise of later guides, relative to their spread."""

GAIN = 1e-9
"""Improvement that the next assignment must make, relative to the score."""


def complete_columns(component: Component) -> Iterator[None]:
    """Offer assignments; yield after every search. End after a proof."""
    rows, gains, rng = component.rows, component.gains, np.random.default_rng(0)
    weight, most = np.ones(len(rows.low)), float(FIRST_DEAD_ENDS)
    closeness = gains / (float(np.abs(gains).mean()) or 1.0)
    towards = np.zeros(len(gains))
    towards[: component.part.n_variables] = component.means - 0.5
    guides = [towards + 1e-3 * closeness, closeness]
    n = 0
    while True:
        guide = guides[n // 2 % 2]
        if n >= 2 * len(guides):
            guide = guide + NOISE * guide.std() * rng.standard_normal(len(guide))
        # the objective of rows that do not describe all factors lacks their additionals
        least = component.score + least_gain(component) if component.is_linear else -np.inf
        domain = component.domain(least)
        given = guide, weight, n % 2 == 1, int(most)
        outcome, best, score = search_columns(component, rows, domain, *given)
        if best is not None:
            component.offer(best[: component.part.n_variables] == 1)
        if outcome == EXHAUSTED:
            # unless the factors refuse what the rows allow, if only up to rounding
            if not component.is_linear and score == -np.inf:
                component.highest = -np.inf
            elif component.is_linear and component.score >= score - least_gain(component):
                component.highest = component.score + least_gain(component) + rows.slack[-1]
            return
        n, most = n + 1, most * GROWTH if n % 2 else most
        yield


def search_columns(
    component: Component,
    rows: Rows,
    domain: Domain,
    guide: FloatArray,
    weight: FloatArray,
    by_need: bool,
    most: int,
) -> tuple[int, ByteArray | None, float]:
    """Search once; return the outcome, and the best assignment and its score.

    Parameters
    ----------
    component
        The component.
    rows, domain
        Its rows, perhaps restricted to some columns, and the columns that are fixed.
    guide
        For each column, its wish to be on; the most decided columns come first.
    weight, by_need, most
        See `complete`.
    """
    best = np.full(len(guide), OPEN, dtype=np.int8)
    outcome, score = complete(
        rows,
        domain,
        np.argsort(-np.abs(guide), kind="stable"),
        (guide > 0.0).astype(np.int8),
        weight,
        by_need,
        most,
        least_gain(component),
        best,
    )
    return outcome, best if score > -np.inf else None, score


def least_gain(component: Component) -> float:
    """Return the improvement that the next assignment must make."""
    return GAIN * max(1.0, abs(component.score) if component.found else 1.0)
