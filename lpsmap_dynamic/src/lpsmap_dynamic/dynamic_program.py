"""Factor types defined by a hypergraph: oracles and inference follow from it."""

from __future__ import annotations

import abc
import math
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from lpsmap_core import Factor, Factors, Scores, Structures
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_dynamic.builder import HypergraphBuilder
from lpsmap_dynamic.declaration import Hypergraph
from lpsmap_dynamic.derivations import HypergraphInference
from lpsmap_dynamic.edges import MOST_NONZEROS
from lpsmap_dynamic.gibbs import Gibbs
from lpsmap_dynamic.max_plus import best_derivations
from lpsmap_dynamic.row import Row, different_rows

__all__ = ["DynamicProgram"]

MOST_BYTES = 1 << 28
"""Maximum bytes of cached hypergraphs, not counting the latest one."""


class DynamicProgram(Factor):
    """A factor type whose structures are the derivations of a hypergraph.

    A type needs one method, `hypergraph`. It determines the MAP oracle, in Python and compiled, and
    hence everything that every factor supports; and inference over all structures, see
    `FactorGraph.gibbs`: log-partition functions, marginals, entropies, their derivatives, samples,
    the k best structures, and their number.

    A type may override `solve_map`, `vertex`, `map_kernel` and `vertex_sizes`, for example by
    faster versions, and may have a closed form. They must agree with the hypergraph.
    """

    map_kernel = staticmethod(best_derivations)
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
        return _cache.get(cls, row)

    def hypergraphs(self) -> tuple[list[Hypergraph], IntArray]:
        """Return the distinct hypergraphs of the factors, and the index of each factor's own."""
        rows, which = different_rows(self)
        return [self.hypergraph_of(row) for row in rows], which

    def inference(self) -> HypergraphInference:
        """Return the inference over the structures of this declaration's factors."""
        return HypergraphInference(self.offsets, self.n_additionals, *self.hypergraphs())

    def _kernel_integers(self) -> tuple[Sequence[IntArray], IntArray]:
        """Return the distinct hypergraphs, if the kernel is the generic one that reads them."""
        if type(self).map_kernel is not best_derivations:
            return super()._kernel_integers()
        found, which = self.hypergraphs()
        return [hypergraph.code for hypergraph in found], which

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Hashable:
        """Return the best structure as pairs of an entry and its count."""
        code = self.hypergraph_of(Row.of_view(self)).code
        u, v = (np.array([0, np.size(x)]) for x in (eta_u, eta_v))
        place = np.array([[0, len(code)]])
        factors = Factors(u, v, np.empty((1, 0)), np.empty(0), code, place)
        found = Structures(
            np.zeros(1, dtype=np.int64),
            np.empty(code[MOST_NONZEROS], dtype=np.int32),
            np.empty(code[MOST_NONZEROS]),
            np.empty(1, dtype=np.int64),
        )
        flat = [np.array(x, dtype=np.float64).reshape(-1) for x in (eta_u, eta_v)]
        best_derivations(np.zeros(1, dtype=np.int64), factors, Scores(*flat), found)
        n = int(found.size[0])
        return tuple(sorted(zip(found.entry[:n].tolist(), found.value[:n].tolist(), strict=True)))

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Return the vertex of structure `y`."""
        arity = math.prod(self.event_shape)
        dense = np.zeros(arity + self.n_additionals)
        for entry, value in y:
            dense[entry] = value
        return dense[:arity].reshape(self.event_shape), dense[arity:]

    def unused(self) -> tuple[BoolArray | None, BoolArray | None]:
        """Return the entries that no hyperedge of a factor switches on."""
        found, which = self.hypergraphs()
        used = np.concatenate([*(x.used for x in found), np.empty(0, dtype=np.bool_)])
        starts, arity = np.cumsum([0, *(x.used.size for x in found)])[which], np.diff(self.offsets)
        own = np.arange(self.offsets[-1]) + np.repeat(starts - self.offsets[:-1], arity)
        slots = np.zeros(self.variables.shape, dtype=np.bool_)
        slots[... if self.keep is None else self.keep] = ~used[own].reshape(
            slots.shape if self.keep is None else -1
        )
        behind = (starts + arity)[:, None] + np.arange(self.n_additionals)
        return slots, ~used[behind]

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the maximum numbers of nonzeros of derivations."""
        sizes: IntArray = factors.integers[factors.integer_ranges[:, 0] + MOST_NONZEROS]
        return sizes


class _HypergraphCache:
    """An LRU cache of hypergraphs."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._found: OrderedDict[tuple[type, Row], Hypergraph] = OrderedDict()
        self._bytes = 0

    def get(self, factor_type: type[DynamicProgram], row: Row) -> Hypergraph:
        """Return the hypergraph of a row of a factor type."""
        key = (factor_type, row)
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
            build = HypergraphBuilder(row.event_shape, row.n_additionals)
            self._found[key] = found = build.finish(factor_type.hypergraph(row, build))
            self._bytes += found.code.nbytes
            while self._bytes > MOST_BYTES and len(self._found) > 1:
                _, oldest = self._found.popitem(last=False)
                self._bytes -= oldest.code.nbytes
            return found


_cache = _HypergraphCache()
