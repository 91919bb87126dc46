"""The record of a bucket's chains."""

from __future__ import annotations

from typing import Any, NamedTuple

from lpsmap_core import kernel
from lpsmap_core.api import FloatArray, IntArray, LocalProblem, SetsRecord, reader_of
from lpsmap_factors_struct.viterbi import n_step_scores

SMALL, FOREST, NO_FOREST = 0, 1, 2
"""Methods for a factor: an active set while it is small; a forest; an active set because a forest
has no solution."""


class ChainsRecord(NamedTuple):
    """Arrays with an entry for every chain, and their forests."""

    sets: SetsRecord
    """The active sets."""
    states: IntArray
    """Number of states."""
    methods: IntArray
    """The method, such as `FOREST`."""
    forests: FloatArray
    """The blocks of the forests."""
    first_words: IntArray
    """Where each chain's block begins, and the end of all."""


chains_at = reader_of(ChainsRecord)
"""Returns, in a kernel, the record of the chains that it was called with."""


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
