"""A cache of layouts: training lays out the same graph at every step.

Entries are immutable, and are looked up by the value of their inputs. The cache is the only state
of the layout that outlives a graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.arrangement import Arrangement, FactorTable, arrange, tabulate
from lpsmap_jit.arrays import BoolArray, IntArray

__all__ = ["cached_arrangement"]

MAX_GRAPHS = 4
"""Number of entries: for training and validation, each with a smaller last batch."""

MAX_CACHED_LINKS = 1 << 19
"""Maximum number of links of all entries, at about a hundred bytes each. Larger graphs are not
cached."""

Numbers = list[tuple[int, int, int]]


class _Entry(NamedTuple):
    """The declarations of a graph and their layout."""

    n_variables: int
    numbers: Numbers
    slots: IntArray
    variable: IntArray
    negated: BoolArray
    table: FactorTable
    arrangement: Arrangement | None


_entries: list[_Entry] = []
"""The latest entry comes first. The list is replaced as a whole, so threads need no lock."""


def cached_arrangement(
    n_variables: int, numbers: Numbers, slots: IntArray, variable: IntArray, negated: BoolArray
) -> tuple[FactorTable, Arrangement | None]:
    """Tabulate some declarations and arrange the part to solve, or return them from the cache.

    A lookup takes a tenth of the time, because it reads links in their order. Graphs may share the
    result, which must not be modified.

    Parameters
    ----------
    n_variables, numbers, slots, variable
        As for `tabulate`.
    negated
        For each link, whether its slot is negated.

    Returns
    -------
    table
        See `FactorTable`.
    arrangement
        None if the table is not in order; the links then have to be sorted first.
    """
    global _entries  # noqa: PLW0603 - a single assignment, see `_entries`
    for entry in _entries:
        if (
            (n_variables, numbers) == (entry.n_variables, entry.numbers)
            and np.array_equal(slots, entry.slots)
            and np.array_equal(variable, entry.variable)
            and np.array_equal(negated, entry.negated)
        ):
            return entry.table, entry.arrangement
    table, arrangement = tabulate(n_variables, numbers, slots, variable), None
    if table.in_order:
        arrangement = arrange(
            table.starts,
            table.component,
            table.of_factor,
            table.additional_offsets,
            variable,
            negated,
            table.n_components,
        )
    if len(variable) <= MAX_CACHED_LINKS:
        entry = _Entry(n_variables, numbers, slots, variable, negated, table, arrangement)
        _entries = _within_limit([entry, *_entries[: MAX_GRAPHS - 1]])
    return table, arrangement


def _within_limit(entries: list[_Entry]) -> list[_Entry]:
    """Return the first entries that have at most `MAX_CACHED_LINKS` links together."""
    ends = np.cumsum([len(entry.variable) for entry in entries])
    return entries[: np.searchsorted(ends, MAX_CACHED_LINKS, side="right")]
