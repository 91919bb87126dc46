"""The local solver of chains: active sets while these are small, and forests."""

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
from lpsmap_factors_struct.chains.chain_records import FOREST, NO_FOREST, SMALL, ChainsRecord
from lpsmap_factors_struct.chains.forest import forest_size
from lpsmap_factors_struct.chains.forest_kernels import (
    multiply_forests,
    solve_forests,
    write_forest_additionals,
)
from lpsmap_factors_struct.chains.paths import MAX_POSITIONS, forest_edges, n_paths, read_paths

MAX_STRUCTURES = 64
"""Maximum number of structures of an active set. Larger ones are replaced by forests, which take a
fifth to a fiftieth of the time for 200 to 2,000 layers, and half for 50."""

MAX_SET_POSITIONS = 2**22
"""Maximum number of layers of all structures of an active set. The time and the memory of a set
grow with both the number of its structures and their length."""


class ChainForests(ActiveSets):
    """The chains of a bucket: each with an active set or a forest.

    A chain that is alone in its component is solved on a forest. A chain among other factors has an
    active set, which can be stopped early. For nearly uniform scores, a solution has about as many
    structures as the chain's polytope has dimensions. A chain that exceeds the limit of its active
    set is solved on a forest, too.

    Parameters
    ----------
    bucket
        Chains laid out like those of ``Sequence``. Their first parameter is the number of states.
    delta, forbidden
        As for `ActiveSets`.
    """

    def __init__(
        self, bucket: Bucket, delta: FloatArray, forbidden: ByteArray | None = None
    ) -> None:
        self.states = bucket.factors.parameters[:, 0].astype(np.int64)
        self.lengths = np.diff(bucket.offsets) // self.states
        has_steps = self.lengths > 1
        self.methods = np.where(has_steps, SMALL, NO_FOREST)
        most = MAX_SET_POSITIONS // np.maximum(self.lengths, 1) + 1
        self.max_structures = np.minimum(most, MAX_STRUCTURES)
        sizes = np.where(has_steps, forest_size(self.lengths, self.states), 0)
        self.first_words = np.concatenate([[0], np.cumsum(sizes)])
        self.forests = np.zeros(self.first_words[-1])
        self._all_small = bool(has_steps.all())
        """Whether no chain has had another method than a small active set."""
        super().__init__(bucket, delta, forbidden)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return the description that `FactorGraph.plan` shows."""
        name, function, _ = super().describe(factor_type)
        return SolverDescription(f"forests, or {name}", function, "a chain")

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
        direct = self._of_method(FOREST, rows)
        if max_iterations == UNTIL_SOLVED:  # alone in their components
            small = self._of_method(SMALL, rows)
            direct = np.concatenate([direct, small[self.active[small] == 0]])
        self._solve_on_forests(direct, a, eta_v, z)
        small = self._of_method(SMALL, rows)
        if len(small) and not stopped():
            self.solve_sets(small, a, eta_v, z, max_iterations, self.max_structures[small])
            self._solve_on_forests(self._beyond_limit(small, max_iterations), a, eta_v, z)
        others = self._of_method(NO_FOREST, rows)
        if len(others) and not stopped():
            self.solve_sets(others, a, eta_v, z, max_iterations)
        if len(v) and not stopped():
            self.write_additionals(rows, v)
        raise_interrupt()

    def _of_method(self, method: int, rows: IntArray) -> IntArray:
        """Return the factors of `rows` with a method."""
        if self._all_small:
            return rows if method == SMALL else rows[:0]
        chosen: IntArray = rows[self.methods[rows] == method]
        return chosen

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Multiply the local Jacobians of `rows`; see `LocalSolver`."""
        if not self._all_small:
            on_forests = self.methods[rows] == FOREST
            multiply_forests(self.handle, rows[on_forests], d_u, d_v, out_u, out_v)
            rows = rows[~on_forests]
        if len(rows):
            super().jvp(rows, d_u, d_v, out_u, out_v)

    def _solve_on_forests(self, rows: IntArray, *arrays: FloatArray) -> None:
        """Solve the local problems of some rows on forests, if there are any."""
        if len(rows) and not stopped():
            self._all_small = False
            solve_forests(self.handle, rows, *arrays)

    def _beyond_limit(self, rows: IntArray, limit: int) -> IntArray:
        """Return the rows that are not solved and have reached the limit of their active set."""
        running: IntArray = rows[self.status[rows] == RUNNING]
        if len(running) == 0:
            return running
        most = self.max_structures[running]
        had_all = limit == UNTIL_SOLVED or (limit > 0) & (limit >= most)
        beyond: IntArray = running[(self.active[running] >= most) | had_all]
        return beyond

    def incomplete(self, rows: IntArray) -> IntArray:
        """Return the factors of `rows` with incomplete active sets; forests are complete."""
        return super().incomplete(rows[self.methods[rows] != FOREST])

    def structures(self, rows: IntArray) -> Vertices:
        """Return the structures of positive weight of the factors in `rows`."""
        on_forests = self.methods[rows] == FOREST
        found = [super().structures(rows[~on_forests])]
        for f in rows[on_forests].tolist():
            length, n_states = int(self.lengths[f]), int(self.states[f])
            n_additionals = int(np.diff(self.bucket.additional_offsets[f : f + 2])[0])
            block = self.forests[self.first_words[f] : self.first_words[f + 1]]
            edges = forest_edges(block, length, n_states)
            self._check_listing(n_paths(edges, length, n_states), length)
            found.append(read_paths(edges, f, length, n_states, n_additionals))
        return join_vertices(found)

    def _check_listing(self, n: int, length: int) -> None:
        """Raise ValueError if the paths are too many to list."""
        if n * length > MAX_POSITIONS:
            name = self.bucket.type.__name__
            raise ValueError(
                f"structures: the solution of a {name} of {length} positions is a mixture of about "
                f"{n} structures; expected at most {MAX_POSITIONS // length} of this length. Read "
                "its marginals (Variables.value, graph.additionals_of), or its best structure "
                "(solution.decode())."
            )

    def write_additionals(self, rows: IntArray, v: FloatArray) -> None:
        """Write the marginals of the additionals of solved `rows`."""
        on_forests = self.methods[rows] == FOREST
        super().write_additionals(rows[~on_forests], v)
        write_forest_additionals(self.handle, rows[on_forests], v)

    def copy_from(self, other: LocalSolver) -> None:
        """Start from the final state of another solve of the same factors."""
        super().copy_from(other)
        if isinstance(other, ChainForests):
            self.methods[:], self._all_small = other.methods, other._all_small
            if not self._all_small:
                self.forests[:] = other.forests

    def own_record(self) -> ChainsRecord:
        """Return the record of the chains for kernels."""
        own = self.states, self.methods, self.forests, self.first_words
        return ChainsRecord(super().own_record(), *own)
