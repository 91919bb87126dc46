"""What the kernels of chains know of the chains of one bucket.

Beside what `lpsmap_core.api.ActiveSets` tells its kernels.
"""

from __future__ import annotations

from typing import Any

from lpsmap_core import kernel
from lpsmap_core.api import (
    FloatArray,
    IntArray,
    LocalProblem,
    floats_at_address,
    interpreted_by,
    own_integers,
)

__all__ = [
    "FLOW",
    "FLOW_KERNELS",
    "FOREST",
    "FOREST_KERNELS",
    "NO_CHAIN",
    "SMALL",
    "block_of",
    "largest_chain",
    "methods_of",
    "states_of",
]

SMALL, FLOW, NO_CHAIN, FOREST = 0, 1, 2, 3
"""How a factor is solved: by its active set as long as it is small; by its flow; by its active set,
since its flow has no solution; by a forest."""

FLOW_KERNELS, FOREST_KERNELS = 1, 2
"""Kernels of `ChainFlows`, compiled when the first chain outgrows its active set, and for the first
chain that is alone."""

_STATES, _METHODS, _ADDRESSES, _LENGTHS = 0, 1, 2, 3
"""Arrays of `ChainFlows`: the last two are of the chains' blocks."""


@kernel
def states_of(chains: Any) -> IntArray:
    """Return the number of states of every chain."""
    return own_integers(chains, _STATES)


@kernel
def methods_of(chains: Any) -> IntArray:
    """Return how every chain is solved."""
    return own_integers(chains, _METHODS)


@interpreted_by(lambda chains, f: chains.block_of(f))
@kernel
def block_of(chains: Any, f: int) -> FloatArray:
    """Return the block of a chain's flow, or forest."""
    addresses, lengths = own_integers(chains, _ADDRESSES), own_integers(chains, _LENGTHS)
    return floats_at_address(addresses[f], lengths[f])  # type: ignore[no-any-return]


@kernel
def largest_chain(chains: Any, rows: IntArray, problem: LocalProblem) -> tuple[int, int]:
    """Return the largest numbers of layers and of states of some chains, 1 for no chains."""
    states, longest, most = states_of(chains), 1, 1
    for f in rows:
        arity = problem.offsets[f + 1] - problem.offsets[f]
        longest, most = max(longest, arity // states[f]), max(most, states[f])
    return longest, most
