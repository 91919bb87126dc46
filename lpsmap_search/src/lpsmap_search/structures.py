"""The structures of a corpus as factors, for SparseMAP and the k best."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lpsmap_core import Factor, FactorGraph
from lpsmap_core import Variables as GraphVariables
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import DynamicProgram, Hypergraph, HypergraphBuilder, Row
from lpsmap_dynamic.edges import edges_of
from lpsmap_search.corpus import Corpus


class CountedStructures(DynamicProgram):
    """One factor per sentence: variables are those of the model, additionals count the parameters.

    Parameters
    ----------
    variables
        Variables of shape (S, K); each sentence uses the first ones of its row.
    scores
        (S, M) scores of the parameters.
    hypergraphs
        (S,) hypergraphs of the sentences, with slots for their variables.
    """

    def __init__(
        self,
        variables: GraphVariables,
        scores: FloatArray,
        hypergraphs: Sequence[Hypergraph],
    ) -> None:
        lengths = np.array([hypergraph.arity for hypergraph in hypergraphs], dtype=np.int64)
        super().__init__(variables, scores, lengths=lengths)
        codes = [hypergraph.code for hypergraph in hypergraphs]
        self.codes = self.integers("codes", codes, per_factor=True)
        self._hypergraphs = list(hypergraphs), np.arange(len(hypergraphs))

    def hypergraphs(self) -> tuple[list[Hypergraph], IntArray]:
        """Return the hypergraphs, one per sentence."""
        return self._hypergraphs

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Rebuild the hypergraph of a sentence from its code, and return its goal."""
        (arity,), edges = row.event_shape, edges_of(row.integers, 0)
        n_items = len(edges.first_edge) - 1
        for item in range(n_items):
            for e in range(edges.first_edge[item], edges.first_edge[item + 1]):
                tails = edges.tails[2 * e : 2 * e + 2]
                used = edges.entries[edges.first_entry[e] : edges.first_entry[e + 1]]
                slots, additionals = used[used < arity], used[used >= arity] - arity
                build.edge(item, (tails[tails > 0] - 1).tolist(), slots.tolist(), additionals)
        return n_items - 1


def structures_of(
    corpus: Corpus, scores: FloatArray, weights: FloatArray | None = None
) -> tuple[FactorGraph, Factor]:
    """Return a graph with one factor for each distinct sentence.

    Parameters
    ----------
    corpus
        The sentences.
    scores
        (M,) scores of the parameters.
    weights
        (S, K) scores of the variables, of which each sentence uses the first ones; None for zeros.
    """
    hypergraphs = [
        counted
        if corpus.model.variables_shape(sentence) is not None
        else with_hyperedges_as_variables(counted)
        for sentence, counted in zip(corpus.sentences, corpus.hypergraphs, strict=True)
    ]
    graph = FactorGraph()
    most = max(hypergraph.arity for hypergraph in hypergraphs)
    u = graph.variable_from(np.zeros((len(hypergraphs), most)) if weights is None else weights)
    rows = np.tile(scores, (len(hypergraphs), 1))
    return graph, graph.add(CountedStructures(u, rows, hypergraphs))


def with_hyperedges_as_variables(counted: Hypergraph) -> Hypergraph:
    """Return a hypergraph in which every hyperedge has a slot of its own, in place of none."""
    edges, n = counted.edges, counted.n_edges
    first = edges.first_entry
    return Hypergraph(
        n,
        counted.n_additionals,
        np.repeat(np.arange(counted.n_items), np.diff(edges.first_edge)),
        edges.tails.reshape(-1, 2) - 1,
        first + np.arange(n + 1),
        np.insert(edges.entries + n, first[:-1], np.arange(n)),
        counted.n_items - 1,
    )
