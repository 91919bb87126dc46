"""Chains: solved on forests, or by active sets while these are small, and then by their flows."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factor, LocalSolver
from lpsmap_core.api import (
    ActiveSets,
    Bucket,
    ByteArray,
    FloatArray,
    IntArray,
    SolverDescription,
    Vertices,
    join_vertices,
)
from lpsmap_factors_struct.flows.chain import DIMENSION, KNOWN, flow_size
from lpsmap_factors_struct.flows.forest import SOLVED, forest_size
from lpsmap_factors_struct.flows.forest_steps import multiply_forests, solve_forests
from lpsmap_factors_struct.flows.handle import (
    FLOW,
    FOREST,
    NO_CHAIN,
    SMALL,
    ChainsRecord,
)
from lpsmap_factors_struct.flows.paths import (
    MOST_POSITIONS,
    flow_edges,
    forest_edges,
    n_paths,
    read_paths,
)
from lpsmap_factors_struct.flows.steps import (
    most_structures,
    multiply_chains,
    multiply_flows,
    solve_chains,
    solve_flows,
)

__all__ = ["ChainFlows"]

MOST_EDGES = 20_000_000
"""Limit of the edges of a flow, of which each takes some forty bytes, and as many again while it is
solved. Larger chains that forests do not solve are left to the active set."""

FEW = 0.25
"""Share of the structures that an active set may have, below which a later solve has one again."""


class ChainFlows(ActiveSets):
    """The chains of a bucket: each one's forest, or active set, or flow.

    Chains that are alone in their components are solved on forests, small ones if their active set
    grows large. Among other factors, local problems need not be solved to the end, for which there
    are active sets. Nearly uniform scores have solutions of as many structures as the chain's
    polytope has dimensions: chains that outgrow their active sets have a flow, which has no more
    numbers than the chain has edges.

    Parameters
    ----------
    bucket
        Chains laid out as those of ``Sequence``, whose first parameter is the number of states.
    delta, barred
        As of `ActiveSets`.
    """

    kernels = (
        (solve_chains, multiply_chains),
        (solve_flows, multiply_flows),
        (solve_forests, multiply_forests),
    )

    def __init__(self, bucket: Bucket, delta: FloatArray, barred: ByteArray | None = None) -> None:
        self.states = bucket.factors.parameters[:, 0].astype(np.int64)
        self.lengths = np.diff(bucket.offsets) // self.states
        fit = self.lengths > 1
        self.methods = np.where(fit, SMALL, NO_CHAIN)
        self.blocks: dict[int, FloatArray] = {}
        self.block_length = np.where(fit, forest_size(self.lengths, self.states), 0)
        self._forest_ends = np.cumsum(self.block_length)
        self._forests = np.empty(self._forest_ends[-1] if len(fit) else 0)
        words = self._forest_ends - self.block_length
        self._forests[words[fit] + SOLVED] = 0.0
        self.block_address = self._forests.ctypes.data + self._forests.itemsize * words
        super().__init__(bucket, delta, barred)

    @classmethod
    def describe(cls, factor_type: type[Factor]) -> SolverDescription:
        """Return what `FactorGraph.plan` says of it."""
        name, function, _ = super().describe(factor_type)
        return SolverDescription(f"forests, or {name}, then flows", function, "a chain")

    def incomplete(self, rows: IntArray) -> IntArray:
        """Return the factors of `rows` that have active sets: flows and forests are complete."""
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
        """Refuse to list more paths than memory and patience allow."""
        if n * length > MOST_POSITIONS:
            name = self.bucket.type.__name__
            raise ValueError(
                f"structures: the solution of a {name} of {length} positions is a mixture of about "
                f"{n} structures; expected at most {MOST_POSITIONS // length} of this length. Read "
                "its marginals (Variables.value, graph.additionals_of), or its best structure "
                "(solution.decode())."
            )

    def copy_from(self, other: LocalSolver) -> None:
        """Start from what another solve of the same factors ended with.

        A chain whose flow has become that of few structures starts with an active set.
        """
        super().copy_from(other)
        if not isinstance(other, ChainFlows):
            return
        self.methods[:] = other.methods
        if (other.methods == FOREST).any():
            self._forests[:] = other._forests
        for f, block in other.blocks.items():
            few = FEW * most_structures(int(self.lengths[f]))
            if other.methods[f] == FLOW and block[KNOWN] and block[DIMENSION] > few:
                self._keep_block(f, block.copy())
            elif other.methods[f] == FLOW:
                self.methods[f] = SMALL

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return super().nbytes + sum(block.nbytes for block in self.blocks.values())

    def answer(self, rows: IntArray) -> None:
        """Make room for the flows of chains that outgrew their active sets, and forget these.

        The largest chains keep their active sets.
        """
        for f in rows.tolist():
            length, n_states = int(self.lengths[f]), int(self.states[f])
            if (length - 1) * n_states**2 > MOST_EDGES:
                self.methods[f] = NO_CHAIN
                continue
            self._keep_block(f, np.zeros(flow_size(length, n_states)))
            self.forget(np.array([f]))
            self.methods[f] = FLOW

    def block_of(self, f: int) -> FloatArray:
        """Return the block of a chain's flow, or of its forest."""
        end = self._forest_ends[f]
        forest = self._forests[end - forest_size(int(self.lengths[f]), int(self.states[f])) : end]
        return self.blocks.get(f, forest)

    def _keep_block(self, f: int, block: FloatArray) -> None:
        self.blocks[f] = block
        self.block_address[f], self.block_length[f] = block.ctypes.data, len(block)

    def own_record(self) -> ChainsRecord:
        """Return what the kernels know of the chains beside their active sets."""
        return ChainsRecord(self.states, self.methods, self.block_address, self.block_length)
