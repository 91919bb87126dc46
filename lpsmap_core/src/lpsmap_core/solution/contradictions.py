"""Factors that contradict each other, of the components of a graph without an assignment."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from lpsmap_core.layout.layout import Layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.slots import label_of
from lpsmap_core.plugins.install_advice import installed_decoder
from lpsmap_core.solution.scored_graph import ScoredGraph

MAX_TIME = 3.0
"""Seconds in which the contradictions of a graph are reduced."""

MAX_NAMED = 12
"""Factors of a component that a sentence names."""

Places = Mapping[int, Sequence[tuple[int, int]]]
"""For components, lists of (bucket, row) of factors of the part."""

Contradictions = dict[int, list[tuple[Factor, int]]]
"""For components, lists of (declaration, number of the factor within it)."""


class ReducedContradictions(NamedTuple):
    """Contradicting factors, and components where the time limit ended their reduction."""

    factors: Contradictions
    ended: frozenset[int]


def reduced_contradictions(graph: ScoredGraph, known: Places) -> ReducedContradictions:
    """Return the contradictions of a `graph` that the installed decoder finds, from `known` ones.

    These are all that there are without a decoder.
    """
    ended = frozenset[int]()
    if known:
        with suppress(ImportError):
            decoder = installed_decoder("contradictions")
            known, ended = decoder.contradictions(graph, known, MAX_TIME)
    return ReducedContradictions(declared(graph.layout, known), ended)


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


def explain_contradictions(
    contradictions: Contradictions, factors: Sequence[Factor], ended: Container[int] = ()
) -> str:
    """Return a sentence for each component of `contradictions`, which names the factors.

    The graph's declarations are `factors`. In the components `ended`, the time limit ended the
    search for unnecessary factors.
    """
    limit = f"; more than necessary may be named: the time limit of {MAX_TIME:g} s ended the search"
    return " ".join(
        f"Component {component} has no solution because of {_listed(named, factors)}"
        f"{limit if component in ended else ''}."
        for component, named in contradictions.items()
    )


def _listed(named: list[tuple[Factor, int]], factors: Sequence[Factor]) -> str:
    names = [label_of(factor, row, factors) for factor, row in named[:MAX_NAMED]]
    more = len(named) - len(names)
    return "; ".join(names) + (f"; and {more} more factors" if more else "")
