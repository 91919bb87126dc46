"""A cache of layouts: training lays out the same graph at every step.

Everything in it is immutable, and found by the value of what it was made from. It is the only state
of the layout that outlives a graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.layout.arrangement import Arrangement, Table, arrange, tabulate
from lpsmap_jit.arrays import BoolArray, IntArray

__all__ = ["arranged"]

MOST_GRAPHS = 4
"""Entries: those of training and of validation, and of last smaller batches."""

MOST_LINKS = 1 << 19
"""Links of all entries, each some hundred bytes: larger graphs are not cached."""

Numbers = list[tuple[int, int, int]]


class _Entry(NamedTuple):
    """The declarations of a graph, and what was found of them."""

    n_variables: int
    numbers: Numbers
    slots: IntArray
    variable: IntArray
    negated: BoolArray
    table: Table
    arrangement: Arrangement | None


_entries: list[_Entry] = []
"""The latest first. The list is replaced as a whole, so that threads need no lock."""


def arranged(
    n_variables: int, numbers: Numbers, slots: IntArray, variable: IntArray, negated: BoolArray
) -> tuple[Table, Arrangement | None]:
    """Tabulate some declarations, and arrange what is to be solved.

    A comparison with the entries takes a tenth of the time, since it reads links in their order.
    Other graphs may share the result, which must not be written to.

    Parameters
    ----------
    n_variables, numbers, slots, variable
        As of `tabulate`.
    negated
        For each link, whether its slot is negated.

    Returns
    -------
    table
        See `Table`.
    arrangement
        None if the table is not in order, so that the links have to be sorted first.
    """
    global _entries  # noqa: PLW0603 - one assignment, see there
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
    if len(variable) <= MOST_LINKS:
        entry = _Entry(n_variables, numbers, slots, variable, negated, table, arrangement)
        _entries = _that_fit([entry, *_entries[: MOST_GRAPHS - 1]])
    return table, arrangement


def _that_fit(entries: list[_Entry]) -> list[_Entry]:
    """Return the first entries that have no more than `MOST_LINKS` together."""
    ends = np.cumsum([len(entry.variable) for entry in entries])
    return entries[: np.searchsorted(ends, MOST_LINKS, side="right")]
