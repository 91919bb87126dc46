"""The local solver of orderings: projections onto the permutahedron."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factor, LocalSolver
from lpsmap_core.api import (
    Bucket,
    ByteArray,
    FloatArray,
    IntArray,
    SolverDescription,
    Vertices,
    join_vertices,
)
from lpsmap_factors_struct.permutahedron.mixed_orders import mix_orders
from lpsmap_factors_struct.permutahedron.order_projection import (
    multiply_orders,
    project_orders,
)


class ProjectedOrders(LocalSolver):
    """The orderings of a bucket, projected onto the permutahedron in O(n log n) for most scores.

    An active set takes thousands of iterations for a hundred items, because the mixture of a
    solution may have many vertices of a face on the way.

    Parameters
    ----------
    bucket
        Orderings, like those of ``Permutation``.
    delta, forbidden
        As for `LocalSolver`.
    """

    vectorised = False
    lists_structures = True

    def __init__(
        self, bucket: Bucket, delta: FloatArray, forbidden: ByteArray | None = None
    ) -> None:
        self.mean, self.block = np.zeros(bucket.n_links), np.zeros(bucket.n_links, dtype=np.int64)
        super().__init__(bucket, delta, forbidden)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return the description that `FactorGraph.plan` shows."""
        return SolverDescription("projection", project_orders, "orderings")

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of `rows`, without iterations; see `LocalSolver`."""
        self.make_finite(rows, a, eta_v)
        project_orders(rows, self.bucket.offsets, self.delta, a, z, self.mean, self.block)

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Multiply the local Jacobians of `rows`; see `LocalSolver`."""
        multiply_orders(rows, self.bucket.offsets, self.delta, self.block, d_u, out_u)

    def structures(self, rows: IntArray) -> Vertices:
        """Return orderings whose mixtures are the solutions of `rows`."""
        return join_vertices([self._orders(f) for f in rows.tolist()])

    def _orders(self, f: int) -> Vertices:
        slots = slice(*self.bucket.offsets[f : f + 2].tolist())
        mean = self.mean[slots]
        last = max(len(mean) - 1, 1)
        weights, positions = mix_orders(mean * last, self.block[slots])
        structure, entry = np.nonzero(positions)
        offsets = np.searchsorted(structure, np.arange(len(weights) + 1))
        owner, value = np.full(len(weights), f), positions[structure, entry] / last
        return Vertices(owner, weights, offsets, entry, value)

    def write_additionals(self, rows: IntArray, v: FloatArray) -> None:
        """Write nothing: orderings have no additionals."""
