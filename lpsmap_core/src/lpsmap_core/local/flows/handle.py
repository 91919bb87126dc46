"""What the kernels of chains know of the chains of one bucket, and what they ask for.

As in `lpsmap_core.local.active.handle`, of which this is the continuation.
"""

from __future__ import annotations

from typing import Any

from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.kernels.compile import interpreted_by, kernel
from lpsmap_core.kernels.native import FAILED, floats, ints_at
from lpsmap_core.local.active.handle import AFTER, LocalProblem, call_solver, scores_of

__all__ = [
    "FLOW",
    "FOREST",
    "MAKE_ROOM",
    "MULTIPLY_FLOWS",
    "MULTIPLY_FORESTS",
    "NO_CHAIN",
    "SMALL",
    "SOLVE_FLOWS",
    "SOLVE_FORESTS",
    "block_of",
    "largest_chain",
    "make_blocks",
    "methods_of",
    "states_of",
]

SMALL, FLOW, NO_CHAIN, FOREST = 0, 1, 2, 3
"""How a factor is solved: by its active set as long as it is small; by its flow; by its active set,
since its flow has no solution; by a forest."""

MAKE_ROOM = 4
"""What compiled loops call Python for, beside what active sets do."""

_STATES, _METHODS, _BLOCKS = AFTER, AFTER + 2, AFTER + 4
SOLVE_FLOWS, MULTIPLY_FLOWS = AFTER + 8, AFTER + 9
SOLVE_FORESTS, MULTIPLY_FORESTS = AFTER + 10, AFTER + 11
"""Positions in the record: of arrays, the third of two, of addresses and lengths; and the addresses
of the kernels of flows, which are compiled when the first chain outgrows its active set, and of
those of forests, which are compiled for the first chain that is alone."""


def _make_blocks(chains: Any, rows: IntArray) -> bool:
    chains.make_blocks(rows)
    return True


@interpreted_by(lambda chains: chains.states)
@kernel
def states_of(chains: Any) -> IntArray:
    """Return the number of states of every chain."""
    return ints_at(chains, _STATES)  # type: ignore[no-any-return]


@interpreted_by(lambda chains: chains.methods)
@kernel
def methods_of(chains: Any) -> IntArray:
    """Return how every chain is solved."""
    return ints_at(chains, _METHODS)  # type: ignore[no-any-return]


@interpreted_by(lambda chains, f: chains.block_of(f))
@kernel
def block_of(chains: Any, f: int) -> FloatArray:
    """Return the block of a chain's flow, or forest."""
    addresses, lengths = ints_at(chains, _BLOCKS), ints_at(chains, _BLOCKS + 2)
    return floats(addresses[f], lengths[f])  # type: ignore[no-any-return]


@interpreted_by(_make_blocks)
@kernel
def make_blocks(chains: Any, rows: IntArray) -> bool:
    """Make room for the flows of some chains; false if Python code raised."""
    chains[FAILED] = call_solver(chains, MAKE_ROOM, rows, scores_of(chains))
    return chains[FAILED] == 0  # type: ignore[no-any-return]


@kernel
def largest_chain(chains: Any, rows: IntArray, problem: LocalProblem) -> tuple[int, int]:
    """Return the largest numbers of layers and of states of some chains, 1 for no chains."""
    states, longest, most = states_of(chains), 1, 1
    for f in rows:
        arity = problem.offsets[f + 1] - problem.offsets[f]
        longest, most = max(longest, arity // states[f]), max(most, states[f])
    return longest, most
