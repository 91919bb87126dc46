"""The structure of graphs that were laid out lately: training makes the same one at every step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.kernels.arrays import BoolArray, IntArray
from lpsmap_core.layout.arrangement import Arrangement, Table, arrange, tabulate

__all__ = ["arranged"]

MOST_GRAPHS = 4
"""Structures that are kept: those of training and of validation, and of last smaller batches."""

MOST_LINKS = 1 << 19
"""Links of all of them, each some hundred bytes: of large graphs nothing is kept."""

Numbers = list[tuple[int, int, int]]


class _Known(NamedTuple):
    """A structure, and what was found of it."""

    n_variables: int
    numbers: Numbers
    slots: IntArray
    variable: IntArray
    negated: BoolArray
    table: Table
    arrangement: Arrangement | None


_latest: list[_Known] = []
"""The latest first. It is replaced as a whole, so that threads need no lock."""


def arranged(
    n_variables: int, numbers: Numbers, slots: IntArray, variable: IntArray, negated: BoolArray
) -> tuple[Table, Arrangement | None]:
    """Tabulate some declarations, and arrange what is to be solved.

    To compare a structure with earlier ones takes a tenth of the time, since links are looked at in
    their order. What is returned may belong to other graphs, too, so that nobody writes to it.

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
    global _latest  # noqa: PLW0603 - one assignment, see there
    for known in _latest:
        if (
            (n_variables, numbers) == (known.n_variables, known.numbers)
            and np.array_equal(slots, known.slots)
            and np.array_equal(variable, known.variable)
            and np.array_equal(negated, known.negated)
        ):
            return known.table, known.arrangement
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
        known = _Known(n_variables, numbers, slots, variable, negated, table, arrangement)
        _latest = _that_fit([known, *_latest[: MOST_GRAPHS - 1]])
    return table, arrangement


def _that_fit(structures: list[_Known]) -> list[_Known]:
    """Return the first structures that have no more than `MOST_LINKS` together."""
    ends = np.cumsum([len(known.variable) for known in structures])
    return structures[: np.searchsorted(ends, MOST_LINKS, side="right")]
