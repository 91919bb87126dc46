"""The record of a bucket's matchings."""

from __future__ import annotations

from typing import Any, NamedTuple

from lpsmap_core import kernel
from lpsmap_core.api import FloatArray, IntArray, SetsRecord, floats_at_address, reader_of

SMALL, DENSE, NO_PROJECTION = 0, 1, 2
"""Methods for a factor: an active set while it is small; a projection; an active set because the
projection failed."""

SOLVED = 0
"""Place of the flag in a block that says whether it holds a solution: multipliers, by side, and the
marginals."""


class MatchingsRecord(NamedTuple):
    """Arrays with an entry for every matching."""

    sets: SetsRecord
    """The active sets."""
    rows: IntArray
    """Number of rows."""
    columns: IntArray
    """Number of columns."""
    full: IntArray
    """Whether the lines of the side that is not longer are all matched."""
    methods: IntArray
    """The method, such as `DENSE`."""
    address: IntArray
    """Address of the block of the projection."""
    length: IntArray
    """Length of that block."""


matchings_at = reader_of(MatchingsRecord)
"""Returns, in a kernel, the record of the matchings that it was called with."""


def block_size(m: int, n: int) -> int:
    """Return the length of the block of a matching."""
    return 1 + m + n + m * n


@kernel
def block_of(matchings: Any, f: int) -> FloatArray:
    """Return the block of a matching's projection."""
    own = matchings_at(matchings)
    return floats_at_address(own.address[f], own.length[f])  # type: ignore[no-any-return]
