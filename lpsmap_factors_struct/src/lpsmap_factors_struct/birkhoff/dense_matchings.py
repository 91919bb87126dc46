"""The local solver of matchings: active sets while these are small, and then projections."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factor, LocalSolver
from lpsmap_core.api import (
    RUNNING,
    UNTIL_SOLVED,
    ActiveSets,
    Bucket,
    ByteArray,
    FloatArray,
    IntArray,
    SolverDescription,
    Vertices,
    join_vertices,
    raise_interrupt,
    stopped,
)
from lpsmap_factors_struct.birkhoff.decomposition import read_matchings
from lpsmap_factors_struct.birkhoff.matching_kernels import (
    multiply_projections,
    solve_projections,
)
from lpsmap_factors_struct.birkhoff.matching_records import (
    DENSE,
    NO_PROJECTION,
    SMALL,
    MatchingsRecord,
    block_size,
)

MAX_STRUCTURES = 4
"""Maximum number of structures of an active set. Larger ones are replaced by projections, which
take less time from about three structures on."""


class DenseMatchings(ActiveSets):
    """The matchings of a bucket, each with an active set or a projection.

    For nearly uniform scores, a solution has up to as many structures as the matrix has entries,
    and an active set takes time in the cube of their number. A matching that exceeds the limit of
    its active set is projected onto the polytope of matchings instead.

    Parameters
    ----------
    bucket
        Factors with the parameters of ``Matching``: the numbers of rows and columns, and whether
        the side that is not longer is matched completely.
    delta, forbidden
        As for `ActiveSets`.
    """

    def __init__(
        self, bucket: Bucket, delta: FloatArray, forbidden: ByteArray | None = None
    ) -> None:
        self.rows, self.columns, self.full = np.ascontiguousarray(
            bucket.factors.parameters[:, :3].T
        ).astype(np.int64)
        n = len(self.rows)
        self.methods, self.blocks = np.full(n, SMALL), dict[int, FloatArray]()
        self.block_address, self.block_length = np.zeros((2, n), dtype=np.int64)
        super().__init__(bucket, delta, forbidden)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return the description that `FactorGraph.plan` shows."""
        name, function, _ = super().describe(factor_type)
        return SolverDescription(f"{name}, then projections", function, "rows and columns")

    def own_record(self) -> MatchingsRecord:
        """Return the record of the matchings for kernels."""
        own = self.rows, self.columns, self.full, self.methods
        addresses = self.block_address, self.block_length
        return MatchingsRecord(super().own_record(), *own, *addresses)

    def solve(
        self,
        rows: IntArray,
        a: FloatArray,
        eta_v: FloatArray,
        z: FloatArray,
        v: FloatArray,
        max_iterations: int,
    ) -> None:
        """Solve the local problems of `rows`; the limit of iterations only applies to active sets.

        See `LocalSolver`.
        """
        methods, limits = self.methods[rows], np.full(len(rows), MAX_STRUCTURES)
        dense, small = rows[methods == DENSE], rows[methods == SMALL]
        if len(dense):
            solve_projections(self.handle, dense, a, eta_v, z)
        if len(small) and not stopped():
            self.solve_sets(small, a, eta_v, z, max_iterations, limits[: len(small)])
            grown = self._beyond_limit(small, max_iterations)
            if len(grown) and not stopped():
                self._begin_projections(grown)
                solve_projections(self.handle, grown, a, eta_v, z)
        others = rows[self.methods[rows] == NO_PROJECTION]
        if len(others) and not stopped():
            self.solve_sets(others, a, eta_v, z, max_iterations)
        raise_interrupt()

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Multiply the local Jacobians of `rows`; see `LocalSolver`."""
        dense = self.methods[rows] == DENSE
        if dense.any():
            multiply_projections(self.handle, rows[dense], d_u, d_v, out_u, out_v)
        if not dense.all():
            super().jvp(rows[~dense], d_u, d_v, out_u, out_v)

    def _begin_projections(self, rows: IntArray) -> None:
        """Allocate memory for the projections of matchings whose active sets exceed their limit."""
        for f in rows.tolist():
            self._keep_block(f, np.zeros(block_size(int(self.rows[f]), int(self.columns[f]))))

    def _beyond_limit(self, rows: IntArray, limit: int) -> IntArray:
        """Return the rows that are not solved and have reached the limit of their active set."""
        had_all = limit <= UNTIL_SOLVED or limit >= MAX_STRUCTURES  # a short run has at least five
        full = self.active[rows] >= MAX_STRUCTURES
        grown: IntArray = rows[(self.status[rows] == RUNNING) & (full | had_all)]
        return grown

    def incomplete(self, rows: IntArray) -> IntArray:
        """Return the factors of `rows` with incomplete active sets; others are complete."""
        return super().incomplete(rows[self.methods[rows] != DENSE])

    def structures(self, rows: IntArray) -> Vertices:
        """Return the structures of positive weight of the factors in `rows`."""
        dense = self.methods[rows] == DENSE
        found = [super().structures(rows[~dense])]
        for f in rows[dense].tolist():
            m, n = int(self.rows[f]), int(self.columns[f])
            found.append(read_matchings(f, m, n, bool(self.full[f]), self._marginals(f)))
        return join_vertices(found)

    def _marginals(self, f: int) -> FloatArray:
        """Return the marginals of a projected matching, as a matrix."""
        m, n, block = int(self.rows[f]), int(self.columns[f]), self.blocks[f]
        x = block[1 + m + n :]
        return x.reshape(m, n) if m >= n else x.reshape(n, m).T

    def copy_from(self, other: LocalSolver) -> None:
        """Start from the final state of another solve of the same factors.

        A matching whose marginals consist of one or two structures returns to an active set.
        """
        super().copy_from(other)
        if not isinstance(other, DenseMatchings):
            return
        for f, block in other.blocks.items():
            several = np.count_nonzero(other._marginals(f)) > 2 * min(self.rows[f], self.columns[f])
            if other.methods[f] == DENSE and several:
                self._keep_block(f, block.copy())
                self.methods[f] = DENSE

    def _keep_block(self, f: int, block: FloatArray) -> None:
        self.blocks[f] = block
        self.block_address[f], self.block_length[f] = block.ctypes.data, len(block)
