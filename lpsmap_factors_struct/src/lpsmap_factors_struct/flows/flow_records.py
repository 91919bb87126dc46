"""The record of a bucket's chains, which kernels access beside that of the active sets."""

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
from lpsmap_factors_struct.viterbi import n_step_scores

__all__ = [
    "FLOW",
    "FOREST",
    "NO_CHAIN",
    "SMALL",
    "ChainsRecord",
    "block_of",
    "chains_at",
    "largest_chain",
    "most_step_scores",
]

SMALL, FLOW, NO_CHAIN, FOREST = 0, 1, 2, 3
"""Methods for a factor: an active set while it is small; a flow; an active set because a flow has
no solution; a forest."""


class ChainsRecord(NamedTuple):
    """Arrays with an entry for every chain."""

    states: IntArray
    """Number of states."""
    methods: IntArray
    """The method, such as `FLOW`."""
    address: IntArray
    """Address of the block of the flow, or forest."""
    length: IntArray
    """Length of that block."""


chains_at = reader_of(ChainsRecord)
"""Returns, in a kernel, the record of the chains that it was called with."""


@interpreted_by(lambda chains, f: chains.block_of(f))
@kernel
def block_of(chains: Any, f: int) -> FloatArray:
    """Return the block of a chain's flow, or forest."""
    own = chains_at(chains)
    return floats_at_address(own.address[f], own.length[f])  # type: ignore[no-any-return]


@kernel
def largest_chain(chains: Any, rows: IntArray, problem: LocalProblem) -> tuple[int, int]:
    """Return the largest numbers of layers and of states of the chains in `rows`, at least 1."""
    states, longest, most = chains_at(chains).states, 1, 1
    for f in rows:
        arity = problem.offsets[f + 1] - problem.offsets[f]
        longest, most = max(longest, arity // states[f]), max(most, states[f])
    return longest, most


@kernel
def most_step_scores(chains: Any, rows: IntArray, problem: LocalProblem) -> int:
    """Return the largest number of transition scores of the chains in `rows`."""
    states, most = chains_at(chains).states, 0
    for f in rows:
        length = (problem.offsets[f + 1] - problem.offsets[f]) // states[f]
        n_additionals = problem.additional_offsets[f + 1] - problem.additional_offsets[f]
        most = max(most, n_step_scores(n_additionals, length, states[f]))
    return most
