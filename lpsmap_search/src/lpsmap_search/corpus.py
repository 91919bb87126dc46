"""A corpus under a model, as flat arrays for kernels."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lpsmap_core.api import FloatArray, IndexArray, IntArray, offsets_of
from lpsmap_dynamic import Hypergraph, HypergraphBuilder, distinct_rows
from lpsmap_search.count_model import CountModel


class Derivations(NamedTuple):
    """The concatenated hypergraphs of all sentences.

    The items of a sentence are contiguous; its first item represents a missing tail.
    """

    first_item: IntArray
    """(S + 1,) where each sentence's items begin."""
    first_edge: IntArray
    """For each item, its first hyperedge, and at the end the number of hyperedges."""
    tails: IndexArray
    """(2 E,) the two tails of each hyperedge, as global items."""
    first_use: IntArray
    """(E + 1,) hyperedge e uses ``uses[first_use[e] : first_use[e + 1]]``."""
    uses: IntArray
    """Parameters."""
    multiplicity: FloatArray
    """(S,) the number of occurrences of each sentence."""
    kind: IndexArray
    """(E,) the kind of each hyperedge: hyperedges of a kind use the same parameters and share a
    score."""
    first_of_kind: IntArray
    """(K + 1,) kind k uses ``uses_of_kind[first_of_kind[k] : first_of_kind[k + 1]]``."""
    uses_of_kind: IntArray
    """Parameters."""


class Corpus:
    """Sentences under a model. Equal sentences are merged: some optimum gives them equal parses.

    Parameters
    ----------
    model
        The model.
    sentences
        Sequences of symbols of the model.

    Raises
    ------
    ValueError
        If there are no sentences, one is empty, or a symbol is unknown.

    Attributes
    ----------
    sentences
        The different sentences, encoded, in the order of their first occurrence.
    multiplicity
        The number of occurrences of each.
    hypergraphs
        Their dynamic programs.
    derivations
        The same without variables, for kernels.
    """

    def __init__(self, model: CountModel, sentences: Iterable[Sequence[Any]]) -> None:
        self.model = model
        counted = collections.Counter(map(model.encode, sentences))
        if not counted:
            raise ValueError("sentences: got none; expected at least one sentence.")
        self.sentences = list(counted)
        self.multiplicity: IntArray = np.array(list(counted.values()), dtype=np.int64)
        self.hypergraphs = [_hypergraph(model, sentence) for sentence in self.sentences]
        self.derivations = _joined(self.hypergraphs, self.multiplicity)

    @property
    def n_sentences(self) -> int:
        """Number of sentences, including repetitions."""
        return int(self.multiplicity.sum())


def _hypergraph(model: CountModel, sentence: tuple[int, ...]) -> Hypergraph:
    """Return the dynamic program of a sentence, with slots for the model's variables, if any."""
    build = HypergraphBuilder(model.variables_shape(sentence) or (0,), model.n_parameters)
    return build.finish(model.hypergraph(sentence, build))


def _joined(hypergraphs: Sequence[Hypergraph], multiplicity: IntArray) -> Derivations:
    first_item, first_edge, tails, first_use, uses = [0], [], [], [], []
    n_items = n_edges = n_uses = 0
    for hypergraph in hypergraphs:
        edges, are_parameters = hypergraph.edges, hypergraph.edges.entries >= hypergraph.arity
        first = offsets_of(are_parameters.astype(np.int64))[edges.first_entry]
        first_edge.append(np.concatenate([[0], edges.first_edge[:-1]]) + n_edges)
        tails.append(edges.tails + n_items)
        first_use.append(first[:-1] + n_uses)
        uses.append(edges.entries[are_parameters] - hypergraph.arity)
        n_items += len(edges.first_edge)
        n_edges += hypergraph.n_edges
        n_uses += int(first[-1])
        first_item.append(n_items)
    all_first, all_uses = np.concatenate([*first_use, [n_uses]]), np.concatenate(uses)
    return Derivations(
        np.array(first_item),
        np.concatenate([*first_edge, [n_edges]]),
        np.concatenate(tails).astype(np.int32),
        all_first,
        all_uses,
        multiplicity.astype(np.float64),
        *_kinds(all_first, all_uses),
    )


def _kinds(first_use: IntArray, uses: IntArray) -> tuple[IndexArray, IntArray, IntArray]:
    """Return the kind of each hyperedge, and the parameters of each kind."""
    sizes = np.diff(first_use)
    padded = np.full((len(sizes), int(sizes.max(initial=0))), -1, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < sizes[:, None]] = uses
    some, kind = distinct_rows(padded)
    different = padded[some]
    used = different >= 0
    first = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    return kind.astype(np.int32), first, different[used]
