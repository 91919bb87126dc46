"""Factors that contradict each other, of the components of a graph without an assignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lpsmap_core.layout.layout import Layout
from lpsmap_core.model.factor import Factor
from lpsmap_core.model.labels import label_of
from lpsmap_jit.arrays import FloatArray

__all__ = ["Contradictions", "Places", "declared", "explained", "fewest", "set_reducer"]

MOST_NAMED = 12
"""Factors of a component that a sentence names."""

Contradictions = dict[int, list[tuple[Factor, int]]]
"""For components, lists of (declaration, number of the factor within it)."""

Places = Mapping[int, Sequence[tuple[int, int]]]
"""The same by bucket and row."""

Reducer = Callable[
    [Layout, Sequence[Factor], FloatArray, Sequence[FloatArray], Places],
    Places,
]

_reducers: list[Reducer] = []


def set_reducer(reduce: Reducer) -> None:
    """Set the function that reduces contradictions, since decoders are in a higher layer.

    Parameters
    ----------
    reduce
        Returns few of the known factors, or of all factors of a component without known ones. Its
        arguments are a layout, its declarations, the scores of variables and of additionals, and
        for each infeasible component (bucket, row) of known factors.
    """
    _reducers[:] = [reduce]


def fewest(
    layout: Layout,
    factors: Sequence[Factor],
    scores: FloatArray,
    additional_scores: Sequence[FloatArray],
    known: Places,
) -> Contradictions:
    """Return few contradicting factors of infeasible components; see `set_reducer`."""
    (reduce,) = _reducers
    return declared(layout, reduce(layout, factors, scores, additional_scores, known))


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


def explained(found: Contradictions, factors: Sequence[Factor]) -> str:
    """Return a sentence for each component, which names its contradicting factors."""
    return " ".join(
        f"Component {component} has no solution because of {_listed(named, factors)}."
        for component, named in found.items()
    )


def _listed(named: list[tuple[Factor, int]], factors: Sequence[Factor]) -> str:
    names = [label_of(factor, row, factors) for factor, row in named[:MOST_NAMED]]
    more = len(named) - len(names)
    return "; ".join(names) + (f"; and {more} more factors" if more else "")
