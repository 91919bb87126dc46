"""The structures of a corpus as factors, for SparseMAP and the k best."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lpsmap_core import Factor, FactorGraph
from lpsmap_core import Variables as GraphVariables
from lpsmap_core.api import FloatArray, IntArray
from lpsmap_dynamic import DynamicProgram, Hypergraph, HypergraphBuilder, Row
from lpsmap_search.corpus import Corpus
from lpsmap_search.count_model import CountModel

__all__ = ["CountedStructures", "structures_of"]


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
        self.codes = self.integers("codes", list(map(_code, hypergraphs)), per_factor=True)
        self._hypergraphs = list(hypergraphs), np.arange(len(hypergraphs))

    def hypergraphs(self) -> tuple[list[Hypergraph], IntArray]:
        """Return the hypergraphs, one per sentence."""
        return self._hypergraphs

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Rebuild the hypergraph of a sentence from its code, and return its goal."""
        (arity,), code = row.event_shape, row.integers
        n_edges = int(code[0])
        heads, tails, sizes, entries = np.split(
            code[1:], np.cumsum([n_edges, 2 * n_edges, n_edges])
        )
        first = np.concatenate([[0], np.cumsum(sizes)])
        tails = tails.reshape(-1, 2)
        for size in np.unique(sizes):
            members = np.flatnonzero(sizes == size)
            used = entries[first[members][:, None] + np.arange(size)]
            n_slots = (used < arity).sum(axis=1)
            for n in np.unique(n_slots):  # slots come first
                same = n_slots == n
                mine, on = members[same], used[same]
                build.edges(heads[mine], tails[mine], on[:, :n], on[:, n:] - arity)
        return int(heads.max())


def _code(hypergraph: Hypergraph) -> IntArray:
    """Return the code that `CountedStructures.hypergraph` reads."""
    edges = hypergraph.edges
    heads = np.repeat(np.arange(hypergraph.n_items), np.diff(edges.first_edge))
    sizes = np.diff(edges.first_entry)
    return np.concatenate([[len(heads)], heads, edges.tails - 1, sizes, edges.entries])


def structures_of(corpus: Corpus, scores: FloatArray) -> tuple[FactorGraph, Factor]:
    """Return a graph with one factor for each distinct sentence.

    Parameters
    ----------
    corpus
        The sentences.
    scores
        (M,) scores of the parameters.
    """
    hypergraphs = [
        with_variables(corpus.model, sentence, counted)
        for sentence, counted in zip(corpus.sentences, corpus.hypergraphs, strict=True)
    ]
    graph = FactorGraph()
    most = max(hypergraph.arity for hypergraph in hypergraphs)
    u = graph.variable_from(np.zeros((len(hypergraphs), most)))
    rows = np.tile(scores, (len(hypergraphs), 1))
    return graph, graph.add(CountedStructures(u, rows, hypergraphs))


def with_variables(model: CountModel, sentence: tuple[int, ...], counted: Hypergraph) -> Hypergraph:
    """Return the hypergraph of a sentence with slots for the model's variables.

    If the model has no variables, every hyperedge is a variable.

    Raises
    ------
    ValueError
        If a structure can have a variable twice.
    """
    shape = model.variables_shape(sentence)
    if shape is not None:
        build = HypergraphBuilder(shape, model.n_parameters)
        return build.finish(model.hypergraph(sentence, build))
    edges, n = counted.edges, counted.n_edges
    first = edges.first_entry
    slots = np.arange(n)
    return Hypergraph(
        n,
        model.n_parameters,
        np.repeat(np.arange(counted.n_items), np.diff(edges.first_edge)),
        edges.tails.reshape(-1, 2) - 1,
        first + np.arange(n + 1),
        np.insert(edges.entries + n, first[:-1], slots),
        counted.n_items - 1,
    )
