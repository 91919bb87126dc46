"""Factor types defined by a hypergraph: oracles and inference follow from it."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from lpsmap_core import Factors, Scores, Structures
from lpsmap_core.api import BoolArray, FloatArray, IntArray
from lpsmap_dynamic.best_derivation import best_derivations
from lpsmap_dynamic.edges import MAX_NONZEROS
from lpsmap_dynamic.hypergraph_factor import HypergraphFactor
from lpsmap_dynamic.row import Row


class DynamicProgram(HypergraphFactor):
    """A factor type whose structures are the derivations of a hypergraph.

    A type needs one method, `hypergraph`. It determines the MAP oracle, in Python and compiled, and
    hence everything that every factor supports; and inference over all structures, see
    `FactorGraph.gibbs`: log-partition functions, marginals, entropies, their derivatives, samples,
    the k best structures, and their number.

    A type may override `solve_map`, `vertex`, `map_kernel` and `vertex_sizes`, for example by
    faster versions, and may have a closed form. They must agree with the hypergraph.
    """

    map_kernel = staticmethod(best_derivations)

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Hashable:
        """Return the best structure as pairs of an entry and its count."""
        code = self.hypergraph_of(Row.of_view(self)).code
        u, v = (np.array([0, np.size(x)]) for x in (eta_u, eta_v))
        place = np.array([[0, len(code)]])
        factors = Factors(u, v, np.empty((1, 0)), np.empty(0), code, place)
        structures = Structures(
            np.zeros(1, dtype=np.int64),
            np.empty(code[MAX_NONZEROS], dtype=np.int32),
            np.empty(code[MAX_NONZEROS]),
            np.empty(1, dtype=np.int64),
        )
        flat = [np.array(x, dtype=np.float64).reshape(-1) for x in (eta_u, eta_v)]
        best_derivations(np.zeros(1, dtype=np.int64), factors, Scores(*flat), structures)
        n = int(structures.size[0])
        return tuple(
            sorted(zip(structures.entry[:n].tolist(), structures.value[:n].tolist(), strict=True))
        )

    def vertex(self, y: Any) -> tuple[FloatArray, FloatArray]:
        """Return the vertex of structure `y`."""
        arity = math.prod(self.event_shape)
        dense = np.zeros(arity + self.n_additionals)
        for entry, value in y:
            dense[entry] = value
        return dense[:arity].reshape(self.event_shape), dense[arity:]

    def unused(self) -> tuple[BoolArray | None, BoolArray | None]:
        """Return the entries that no hyperedge of a factor switches on."""
        hypergraphs, which = self.hypergraphs()
        used = np.concatenate([*(x.used for x in hypergraphs), np.empty(0, dtype=np.bool_)])
        starts, arity = (
            np.cumsum([0, *(x.used.size for x in hypergraphs)])[which],
            np.diff(self.offsets),
        )
        number = np.arange(self.offsets[-1]) + np.repeat(starts - self.offsets[:-1], arity)
        slots = np.zeros(self.variables.shape, dtype=np.bool_)
        slots[... if self.keep is None else self.keep] = ~used[number].reshape(
            slots.shape if self.keep is None else -1
        )
        behind = (starts + arity)[:, None] + np.arange(self.n_additionals)
        return slots, ~used[behind]

    @classmethod
    def vertex_sizes(cls, factors: Factors) -> IntArray:
        """Return the maximum numbers of nonzeros of derivations."""
        sizes: IntArray = factors.integers[factors.integer_ranges[:, 0] + MAX_NONZEROS]
        return sizes
