"""Diving with oracles: fix some of what the factors choose, propagate, and let them choose again.

In every round, the factors choose their best structures given what is fixed. Of the variables that
are on in all of them, the best are fixed, and rows are propagated. A round without structures is
undone, and repeated with fewer variables; a single variable is switched off instead. (Diving
heuristics of integer programs, such as those of Berthold 2006, with oracles in place of a linear
program.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lpsmap_core.api import BoolArray, ByteArray, FloatArray, IntArray
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.leaders import Oracles
from lpsmap_decode.heuristics.propagation import (
    OPEN,
    Domain,
    propagate,
    try_value,
    undo,
)

__all__ = ["dive"]

FIRST_SHARE, MIN_SHARE = 0.3, 1e-3
"""The share of the variables that are on in all structures to fix in a round."""

MAX_DEAD = 30
"""Maximum number of rounds that are undone."""


def dive(component: Component, groups: Sequence[Oracles], guide: FloatArray) -> Iterator[None]:
    """Offer an assignment; yield after every round.

    Parameters
    ----------
    component
        The component.
    groups
        Factors in groups that share no variable; the first choose where groups differ.
    guide
        Scores of the variables.
    """
    rows, n, domain = component.rows, component.part.n_variables, component.domain()
    if propagate(rows, domain) >= 0:
        return
    covered = np.zeros(n, dtype=np.int64)
    for group in groups:
        covered += np.bincount(group.variable, minlength=n) > 0
    rounds: list[tuple[int, IntArray, int]] = []
    share, n_dead = FIRST_SHARE, 0
    while True:
        value = domain.value[:n]
        chosen, votes, fits = _chosen(groups, value, guide)
        yield
        if fits:
            component.offer(chosen)
            wanted, fixed = _wanted(votes, covered, value == OPEN, guide, share), 1
            if not wanted.size:
                wanted, fixed = _lacking(component, chosen, value == OPEN, guide)
            if not wanted.size:
                return
            rounds.append((int(domain.counters[0]), wanted, fixed))
            fits = _fixed(component, domain, wanted, fixed)
        while not fits:
            n_dead, share = n_dead + 1, max(0.5 * share, MIN_SHARE)
            if not rounds or n_dead > MAX_DEAD:
                return
            length, wanted, fixed = rounds.pop()
            undo(rows, domain, length)
            fits = len(wanted) > 1 or try_value(rows, domain, int(wanted[0]), 1 - fixed)


def _wanted(
    votes: IntArray, covered: IntArray, is_open: BoolArray, guide: FloatArray, share: float
) -> IntArray:
    """Return the best open variables that are on in all structures, or else in any."""
    wanted = np.flatnonzero(is_open & (votes > 0) & (votes == covered))
    if not wanted.size:
        wanted = np.flatnonzero(is_open & (votes > 0))
    wanted = wanted[np.argsort(-guide[wanted], kind="stable")]
    return wanted[: max(1, int(share * len(wanted)))]


def _lacking(
    component: Component, chosen: BoolArray, is_open: BoolArray, guide: FloatArray
) -> tuple[IntArray, int]:
    """Return the variable, and its value, that best mends a row which what is chosen violates."""
    rows, n = component.rows, len(chosen)
    row = np.repeat(np.arange(len(rows.low)), np.diff(rows.first))
    plain = rows.column < n
    terms = np.where(plain, rows.coefficient * chosen[np.minimum(rows.column, n - 1)], 0.0)
    sums = np.bincount(row, terms, len(rows.low))
    lacks = np.where(sums < rows.low - rows.slack, 1.0, 0.0)
    lacks -= np.where(sums > rows.high + rows.slack, 1.0, 0.0)
    value = rows.coefficient * lacks[row] > 0.0
    column = np.minimum(rows.column, n - 1)
    mends = plain & (lacks[row] != 0.0) & is_open[column] & (value != chosen[column])
    if not mends.any():
        return np.empty(0, dtype=np.int64), 0
    gain = np.where(mends, np.where(value, guide[column], -guide[column]), -np.inf)
    best = int(gain.argmax())
    return column[[best]], int(value[best])


def _chosen(
    groups: Sequence[Oracles], value: ByteArray, guide: FloatArray
) -> tuple[BoolArray, IntArray, bool]:
    """Return what the factors choose, the votes for every variable, and whether all obey."""
    towards = np.where(value == OPEN, guide, np.where(value == 1, np.inf, -np.inf))
    chosen, votes, fits = towards > 0.0, np.zeros(len(value), dtype=np.int64), True
    for group in reversed(groups):
        on = group.best(towards[group.variable])
        given = value[group.variable]
        fits &= not ((given != OPEN) & (on != (given == 1))).any()
        votes += np.bincount(group.variable, on, len(value)).astype(np.int64)
        chosen[group.variable] = on
    return chosen, votes, fits


def _fixed(component: Component, domain: Domain, wanted: IntArray, value: int) -> bool:
    """Fix variables to a value, or to the other where rows forbid it; return whether rows allow."""
    for v in wanted.tolist():
        if domain.value[v] == OPEN and not (
            try_value(component.rows, domain, v, value)
            or try_value(component.rows, domain, v, 1 - value)
        ):
            return False
    return True
