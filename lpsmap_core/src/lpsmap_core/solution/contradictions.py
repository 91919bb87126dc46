"""Factors that contradict each other, of the components of a graph without an assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lpsmap_core.layout.layout import Layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import label_of
from lpsmap_core.solution.decoder import installed_decoder
from lpsmap_core.solution.scored_graph import ScoredGraph

__all__ = ["Contradictions", "declared", "explain_contradictions", "reduced_contradictions"]

MAX_NAMED = 12
"""Factors of a component that a sentence names."""

Places = Mapping[int, Sequence[tuple[int, int]]]
"""For components, lists of (bucket, row) of factors of the part."""

Contradictions = dict[int, list[tuple[Factor, int]]]
"""For components, lists of (declaration, number of the factor within it)."""


def reduced_contradictions(graph: ScoredGraph, known: Places) -> Contradictions:
    """Return the contradictions that the installed decoder finds, or the known ones without it.

    Parameters
    ----------
    graph
        The graph.
    known
        For each infeasible component factors that contradict each other, if any are known.
    """
    if not known:
        return {}
    try:
        decoder = installed_decoder("contradictions")
    except ImportError:
        return declared(graph.layout, known)
    return declared(graph.layout, decoder.contradictions(graph, known))


def declared(layout: Layout, known: Places) -> Contradictions:
    """Return the declarations and numbers of factors that are given by bucket and row."""
    buckets = layout.part.buckets
    return {
        component: [
            (bucket.declarations[bucket.declaration[row]], int(bucket.row[row]))
            for bucket, row in ((buckets[b], row) for b, row in which)
        ]
        for component, which in sorted(known.items())
    }


def explain_contradictions(found: Contradictions, factors: Sequence[Factor]) -> str:
    """Return a sentence for each component, which names its contradicting factors.

    Parameters
    ----------
    found
        The contradictions.
    factors
        The declarations of the graph.
    """
    return " ".join(
        f"Component {component} has no solution because of {_listed(named, factors)}."
        for component, named in found.items()
    )


def _listed(named: list[tuple[Factor, int]], factors: Sequence[Factor]) -> str:
    names = [label_of(factor, row, factors) for factor, row in named[:MAX_NAMED]]
    more = len(named) - len(names)
    return "; ".join(names) + (f"; and {more} more factors" if more else "")
