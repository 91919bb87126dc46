"""What the kernels of chains know of the chains of one bucket.

Beside what `lpsmap_core.api.ActiveSets` tells its kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lpsmap_core import kernel
from lpsmap_core.api import (
    FloatArray,
    IntArray,
    LocalProblem,
    floats_at_address,
    interpreted_by,
    reader_of,
)

__all__ = [
    "FLOW",
    "FLOW_KERNELS",
    "FOREST",
    "FOREST_KERNELS",
    "NO_CHAIN",
    "SMALL",
    "ChainsRecord",
    "block_of",
    "chains_at",
    "largest_chain",
]

SMALL, FLOW, NO_CHAIN, FOREST = 0, 1, 2, 3
"""How a factor is solved: by its active set as long as it is small; by its flow; by its active set,
since its flow has no solution; by a forest."""

FLOW_KERNELS, FOREST_KERNELS = 1, 2
"""Kernels of `ChainFlows`, compiled when the first chain outgrows its active set, and for the first
chain that is alone."""


class ChainsRecord(NamedTuple):
    """What is known of every chain."""

    states: IntArray
    """Their number."""
    methods: IntArray
    """How it is solved."""
    address: IntArray
    """Of the block of its flow, or forest."""
    length: IntArray
    """Of that block."""


chains_at = reader_of(ChainsRecord)
"""Returns, in kernels, the record of the chains that they are called with."""


@interpreted_by(lambda chains, f: chains.block_of(f))
@kernel
def block_of(chains: Any, f: int) -> FloatArray:
    """Return the block of a chain's flow, or forest."""
    own = chains_at(chains)
    return floats_at_address(own.address[f], own.length[f])  # type: ignore[no-any-return]


@kernel
def largest_chain(chains: Any, rows: IntArray, problem: LocalProblem) -> tuple[int, int]:
    """Return the largest numbers of layers and of states of some chains, 1 for no chains."""
    states, longest, most = chains_at(chains).states, 1, 1
    for f in rows:
        arity = problem.offsets[f + 1] - problem.offsets[f]
        longest, most = max(longest, arity // states[f]), max(most, states[f])
    return longest, most
