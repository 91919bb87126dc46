"""The local solver of chains: forests, or active sets while these are small, and then flows."""

from __future__ import annotations

from collections.abc import Callable

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
from lpsmap_factors_struct.flows.chain import DIMENSION, FLOW_SOLVED, flow_size
from lpsmap_factors_struct.flows.chain_kernels import multiply_flows, solve_flows
from lpsmap_factors_struct.flows.flow_records import (
    FLOW,
    FOREST,
    NO_CHAIN,
    SMALL,
    ChainsRecord,
)
from lpsmap_factors_struct.flows.forest import forest_size
from lpsmap_factors_struct.flows.forest_kernels import multiply_forests, solve_forests
from lpsmap_factors_struct.flows.paths import (
    MAX_POSITIONS,
    flow_edges,
    forest_edges,
    n_paths,
    read_paths,
)

__all__ = ["ChainFlows"]

STRUCTURES_PER_LAYER, BASE_STRUCTURES = 2, 32
"""Maximum number of structures of an active set: so many per layer, plus a constant. Larger ones
are replaced by flows."""

MAX_SET_POSITIONS = 2**22
"""Maximum number of layers of all structures of an active set. The time and the memory of a set
grow with both the number of its structures and their length."""

SMALL_CHAIN = 300
"""Number of nodes up to which lone chains, too, start with an active set. With 20 positions and 10
states this takes four fifths of a forest's time for a score scale of 1."""

MAX_EDGES = 20_000_000
"""Maximum number of edges of a flow. An edge takes some forty bytes, and as many again during a
solve. Larger chains that forests do not solve use the active set."""

RETURN_SHARE = 0.25
"""Share of the limit of structures below which a later solve uses an active set again."""


class ChainFlows(ActiveSets):
    """The chains of a bucket: each with a forest, an active set, or a flow.

    A chain that is alone in its component is solved on a forest; a small one only once its active
    set grows large. A chain among other factors has an active set, which can be stopped early. For
    nearly uniform scores, a solution has about as many structures as the chain's polytope has
    dimensions. A chain that exceeds the limit of its active set is solved by a flow, which has one
    number for each edge.

    Parameters
    ----------
    bucket
        Chains laid out like those of ``Sequence``. Their first parameter is the number of states.
    delta, barred
        As for `ActiveSets`.
    """

    def __init__(self, bucket: Bucket, delta: FloatArray, barred: ByteArray | None = None) -> None:
        self.states = bucket.factors.parameters[:, 0].astype(np.int64)
        self.lengths = np.diff(bucket.offsets) // self.states
        fit = self.lengths > 1
        self.methods = np.where(fit, SMALL, NO_CHAIN)
        self.max_structures = max_structures(self.lengths)
        self._is_small = self.lengths * self.states <= SMALL_CHAIN
        self.blocks: dict[int, FloatArray] = {}
        self.block_length = np.where(fit, forest_size(self.lengths, self.states), 0)
        self._forest_ends = np.cumsum(self.block_length)
        self._forests = np.zeros(self._forest_ends[-1] if len(fit) else 0)
        words = self._forest_ends - self.block_length
        self.block_address = self._forests.ctypes.data + self._forests.itemsize * words
        super().__init__(bucket, delta, barred)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return the description that `FactorGraph.plan` shows."""
        name, function, _ = super().describe(factor_type)
        return SolverDescription(f"forests, or {name}, then flows", function, "a chain")

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
        arrays, alone = (a, eta_v, z, v), max_iterations == UNTIL_SOLVED
        methods = self.methods[rows]
        on_forests = methods == FOREST
        if alone:
            untouched = (methods == SMALL) & (self.active[rows] == 0)
            on_forests |= untouched & ~self._is_small[rows]
        self._solve_with(solve_forests, rows[on_forests], *arrays)
        self._solve_with(solve_flows, rows[methods == FLOW], *arrays)
        small = self._with_method(rows, SMALL)
        if len(small) and not stopped():
            self.solve_sets(small, *arrays, max_iterations, self.max_structures[small])
            grown = self._beyond_limit(small, max_iterations)
            if alone:
                self._solve_with(solve_forests, grown[self._is_small[grown]], *arrays)
                grown = self._with_method(grown, SMALL)
            if not stopped():
                self._begin_flows(grown)
                self._solve_with(solve_flows, self._with_method(grown, SMALL), *arrays)
        others = self._with_method(rows, NO_CHAIN)
        if len(others) and not stopped():
            self.solve_sets(others, *arrays, max_iterations)
        raise_interrupt()

    def jvp(
        self, rows: IntArray, d_u: FloatArray, d_v: FloatArray, out_u: FloatArray, out_v: FloatArray
    ) -> None:
        """Multiply the local Jacobians of `rows`; see `LocalSolver`."""
        arrays, methods = (d_u, d_v, out_u, out_v), self.methods[rows]
        in_sets = (methods == SMALL) | (methods == NO_CHAIN)
        if not in_sets.all():
            self._solve_with(multiply_flows, rows[methods == FLOW], *arrays)
            self._solve_with(multiply_forests, rows[methods == FOREST], *arrays)
            rows = rows[in_sets]
        if len(rows):
            self.multiply_sets(rows, *arrays)

    def _solve_with(self, kernel: Callable[..., None], rows: IntArray, *arrays: FloatArray) -> None:
        """Call a kernel for some rows, if there are any."""
        if len(rows):
            kernel(self.handle, rows, *arrays)

    def _with_method(self, rows: IntArray, method: int) -> IntArray:
        """Return the rows with some method."""
        chosen: IntArray = rows[self.methods[rows] == method]
        return chosen

    def _beyond_limit(self, rows: IntArray, limit: int) -> IntArray:
        """Return the rows that are not solved and have reached the limit of their active set."""
        most = self.max_structures[rows]
        had_all = limit == UNTIL_SOLVED or (limit > 0) & (limit >= most)
        reached = (self.active[rows] >= most) | had_all
        grown: IntArray = rows[(self.status[rows] == RUNNING) & reached]
        return grown

    def _begin_flows(self, rows: IntArray) -> None:
        """Allocate memory for the flows of chains whose active sets exceed their limit.

        The largest chains keep their active sets.
        """
        for f in rows.tolist():
            length, n_states = int(self.lengths[f]), int(self.states[f])
            if (length - 1) * n_states**2 > MAX_EDGES:
                self.methods[f] = NO_CHAIN
                continue
            self._keep_block(f, np.zeros(flow_size(length, n_states)))

    def incomplete(self, rows: IntArray) -> IntArray:
        """Return the factors of `rows` with incomplete active sets; others are complete."""
        methods = self.methods[rows]
        return super().incomplete(rows[(methods == SMALL) | (methods == NO_CHAIN)])

    def structures(self, rows: IntArray) -> Vertices:
        """Return the structures of positive weight of the factors in `rows`."""
        methods = self.methods[rows]
        others = (methods == FLOW) | (methods == FOREST)
        found = [super().structures(rows[~others])]
        for f in rows[others].tolist():
            length, n_states = int(self.lengths[f]), int(self.states[f])
            edges_of = flow_edges if self.methods[f] == FLOW else forest_edges
            extra = self.bucket.additional_offsets
            n_additionals = int(extra[f + 1] - extra[f])
            edges = edges_of(self.block_of(f), length, n_states)
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

    def copy_from(self, other: LocalSolver) -> None:
        """Start from the final state of another solve of the same factors.

        A chain whose flow consists of few structures returns to an active set.
        """
        super().copy_from(other)
        if not isinstance(other, ChainFlows):
            return
        self.methods[:] = other.methods
        if (other.methods == FOREST).any():
            self._forests[:] = other._forests
        for f, block in other.blocks.items():
            few = RETURN_SHARE * self.max_structures[f]
            if other.methods[f] == FLOW and block[FLOW_SOLVED] and block[DIMENSION] > few:
                self._keep_block(f, block.copy())
            elif other.methods[f] == FLOW:
                self.methods[f] = SMALL

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return super().nbytes + sum(block.nbytes for block in self.blocks.values())

    def block_of(self, f: int) -> FloatArray:
        """Return the block of a chain's flow, or else of its forest."""
        end = self._forest_ends[f]
        forest = self._forests[end - forest_size(int(self.lengths[f]), int(self.states[f])) : end]
        return self.blocks.get(f, forest)

    def _keep_block(self, f: int, block: FloatArray) -> None:
        self.blocks[f] = block
        self.block_address[f], self.block_length[f] = block.ctypes.data, len(block)

    def own_record(self) -> ChainsRecord:
        """Return the record of the chains that kernels use beside their active sets."""
        return ChainsRecord(self.states, self.methods, self.block_address, self.block_length)


def max_structures(lengths: IntArray) -> IntArray:
    """Return the maximum number of structures of the active sets of chains of some lengths."""
    few = BASE_STRUCTURES + STRUCTURES_PER_LAYER * lengths
    most: IntArray = np.minimum(few, MAX_SET_POSITIONS // np.maximum(lengths, 1) + 1)
    return most
