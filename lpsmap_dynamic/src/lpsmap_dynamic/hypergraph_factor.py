"""Factor types whose structures are the derivations of a hypergraph: sums follow from it."""

from __future__ import annotations

import abc
import functools
from collections.abc import Hashable, Sequence

import numpy as np

from lpsmap_core import Factor, TensorOracle
from lpsmap_core.api import IntArray, row_view
from lpsmap_dynamic.best_derivation import best_derivations
from lpsmap_dynamic.builder import HypergraphBuilder
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.derivations import HypergraphInference
from lpsmap_dynamic.gibbs import Gibbs
from lpsmap_dynamic.hypergraph_cache import HypergraphCache
from lpsmap_dynamic.inference import Inference
from lpsmap_dynamic.row import Row, different_rows
from lpsmap_dynamic.tensor_oracle import hypergraph_oracle

Described = tuple[Sequence[Hypergraph], IntArray]
"""Distinct hypergraphs, and the number of that of each factor."""


class HypergraphFactor(Factor):
    """A factor type whose structures are the derivations of a hypergraph, and that has an oracle.

    The method `hypergraph` determines the inference over all structures, see `FactorGraph.gibbs`:
    log-partition functions, marginals, entropies, their derivatives, samples, the k best
    structures, and their number. The type has its own `solve_map` and `vertex`, which must agree
    with the hypergraph; a `DynamicProgram` also derives these from it.
    """

    gibbs = Gibbs

    @classmethod
    @abc.abstractmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> Hashable:
        """Add the hyperedges of one factor's dynamic program, and return its goal item.

        Parameters
        ----------
        row
            The description of the factor: the shape of its slots, its parameters and integers.
            Factors with equal rows share a hypergraph, which is built once.
        build
            ``build.edge(head, tails, slots=..., additionals=...)`` adds a hyperedge.
        """

    @classmethod
    def hypergraph_of(cls, row: Row) -> Hypergraph:
        """Return the hypergraph of a row, built on first use."""

        def build() -> Hypergraph:
            builder = HypergraphBuilder(row.event_shape, row.n_additionals)
            return builder.finish(cls.hypergraph(row, builder))

        return _cache.get((cls, row), build)

    def hypergraphs(self) -> tuple[list[Hypergraph], IntArray]:
        """Return the distinct hypergraphs of the factors, and the index of each factor's own."""
        rows, which = different_rows(self)
        return [self.hypergraph_of(row) for row in rows], which

    def min_paths(self) -> IntArray:
        """Return a lower bound of the number of paths of every factor's hypergraph.

        A path is a sequence of hyperedges from one slot to the next of a hypergraph without
        branches. With a bound, a graph with too many paths for sums over its cycles is refused
        before hypergraphs are built. The default is 0.
        """
        return np.zeros(self.n_factors, dtype=np.int64)

    def _kernel_integers(self) -> tuple[Sequence[IntArray], IntArray]:
        """Return the distinct hypergraphs, if the kernel is the generic one that reads them."""
        if type(self).map_kernel is not best_derivations:
            return super()._kernel_integers()
        hypergraphs, which = self.hypergraphs()
        return [hypergraph.code for hypergraph in hypergraphs], which

    def tensor_oracle(self) -> TensorOracle | None:
        """Return the oracle by levels of the hypergraphs; None for a declaration with a mask."""
        if self._masked or not self.n_factors:
            return None
        hypergraphs, which = self.hypergraphs()
        rows = [row_view(self, int(i)) for i in np.unique(which, return_index=True)[1]]
        shapes = tuple(tuple(row.event_shape) for row in rows)
        return hypergraph_oracle(tuple(hypergraphs), shapes, which, self.event_shape)

    def inference(self) -> Inference:
        """Return the inference over the structures of this declaration's factors."""
        hypergraphs = self.hypergraphs()  # now, so that one that takes too much memory is refused
        described = functools.partial(_unchanged, hypergraphs)  # which is pickled
        return HypergraphInference(self.offsets, self.n_additionals, described)


def _unchanged(hypergraphs: Described) -> Described:
    return hypergraphs


_cache = HypergraphCache[Hypergraph]()
"""Hypergraphs by type and row."""
