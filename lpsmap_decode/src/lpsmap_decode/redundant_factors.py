"""Redundant factors, whose constraints are implied by their size, or by another factor.

Given ``e . x <= h`` and ``0 <= x <= 1``, the row ``c . x <= b`` is redundant if ``h`` plus the sum
of all ``max(c_i - e_i, 0)`` is at most ``b``. Redundancy for other reasons, such as several rows
together, is not detected.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor, LinearConstraints
from lpsmap_core.api import BoolArray, FloatArray, IntArray, ranges
from lpsmap_decode.constraints import known_constraints, of_variables, summed

__all__ = ["count_redundant", "find_redundant"]

MAX_PAIRS = 5_000_000
"""Maximum number of pairs of rows with a common variable. If there are more, none is compared."""

SUM_TOLERANCE = 1e-9
"""Rounding error of a sum, relative to 1 plus the bound."""


class _Rows(NamedTuple):
    """Rows ``c . x <= high`` over the graph's variables, with entries sorted by row."""

    owner: IntArray
    """For each row, the number of its factor."""
    high: FloatArray
    first: IntArray
    """(rows + 1,) position of each row's first entry."""
    variable: IntArray
    coefficient: FloatArray


def count_redundant(declarations: Sequence[Factor]) -> dict[str, int]:
    """Return the numbers of redundant factors, by the names of their types.

    The number of their variables or one other factor implies their constraints, so that they can be
    omitted. Only redundancy that is cheap to prove is counted.

    Parameters
    ----------
    declarations
        The factors of a graph, ``graph.factors``.
    """
    counts: Counter[str] = Counter()
    for factor, redundant in zip(declarations, find_redundant(declarations), strict=True):
        counts[type(factor).__name__] += int(redundant.sum())
    return {name: n for name, n in counts.items() if n}


def find_redundant(declarations: Sequence[Factor]) -> list[BoolArray]:
    """Return for every declaration which of its factors are redundant.

    Of factors that imply each other, the first does not count as redundant, so that all redundant
    factors can be omitted together.
    """
    first = np.cumsum([0, *(factor.n_factors for factor in declarations)])
    candidates = np.zeros(first[-1], dtype=bool)  # factors that their rows describe completely
    parts = []
    for factor, n in zip(declarations, first.tolist(), strict=False):
        known, exact = known_constraints(factor)
        parts.append(_rows(factor, n, known))
        # a type without constraints, such as free bits, has another purpose
        constrains = known is not None and exact and len(known.low) and not known.n_auxiliary
        if constrains and not factor.n_additionals:
            candidates[n : n + factor.n_factors] = np.diff(factor.offsets) > 0
    rows = _concatenate(parts)
    violable = _row_maxima(rows) > rows.high + SUM_TOLERANCE * (1.0 + np.abs(rows.high))
    row, by = _implied(rows, np.flatnonzero(violable & candidates[rows.owner]))
    redundant = _without(candidates, rows.owner[violable & ~np.isin(np.arange(len(violable)), row)])
    # A row must be implied by a row that stays, or by one whose own implication precedes it.
    stays = ~redundant[rows.owner[by]] | (rows.owner[by] < rows.owner[row])
    redundant = _without(
        candidates, rows.owner[violable & ~np.isin(np.arange(len(violable)), row[stays])]
    )
    return [redundant[begin:end] for begin, end in itertools.pairwise(first.tolist())]


def _without(candidates: BoolArray, binding: IntArray) -> BoolArray:
    redundant = candidates.copy()
    redundant[binding] = False
    return redundant


def _row_maxima(rows: _Rows) -> FloatArray:
    """Return the largest possible sum of every row."""
    totals = np.append(0.0, np.cumsum(np.maximum(rows.coefficient, 0.0)))[rows.first]
    return np.diff(totals)


def _implied(rows: _Rows, asked: IntArray) -> tuple[IntArray, IntArray]:
    """Return pairs of rows, the first one from `asked`, where the second row implies the first."""
    none = np.empty(0, dtype=np.int64)
    order = np.argsort(rows.variable, kind="stable")
    entry = ranges(rows.first, asked)
    begin = np.searchsorted(rows.variable[order], rows.variable[entry], side="left")
    end = np.searchsorted(rows.variable[order], rows.variable[entry], side="right")
    if (end - begin).sum() > MAX_PAIRS or not entry.size:
        return none, none
    row_of = np.repeat(np.arange(len(rows.high)), np.diff(rows.first))
    mine = np.repeat(entry, end - begin)
    ends = np.cumsum(end - begin)
    theirs = order[np.arange(ends[-1]) + np.repeat(begin - np.append(0, ends[:-1]), end - begin)]
    c, e = rows.coefficient[mine], rows.coefficient[theirs]
    pairs, at = np.unique(np.stack([row_of[mine], row_of[theirs]]), axis=1, return_inverse=True)
    shared = np.maximum(c - e, 0.0) - np.maximum(c, 0.0) - np.maximum(-e, 0.0)
    excess = np.bincount(at.reshape(-1), shared, minlength=pairs.shape[1])
    row, by = pairs
    excess += _row_maxima(rows)[row] + _row_maxima(rows._replace(coefficient=-rows.coefficient))[by]
    allowed = rows.high[row] + SUM_TOLERANCE * (1.0 + np.abs(rows.high[row]))
    implied = (rows.high[by] + excess <= allowed) & (rows.owner[row] != rows.owner[by])
    return row[implied], by[implied]


def _rows(factor: Factor, first_factor: int, known: LinearConstraints | None) -> _Rows:
    """Return the constraints of a declaration as rows over the graph's variables."""
    if known is None:
        nothing, numbers = np.empty(0, dtype=np.int64), np.empty(0)
        return _Rows(nothing, numbers, np.zeros(1, dtype=np.int64), nothing, numbers)
    known, variable = of_variables(factor, known)
    shown, row = _of_slots(known, len(variable))
    slot, n = known.column[shown], int(variable.max(initial=0)) + 1
    row, variable_of, total = summed(row, variable[slot], known.coefficient[shown], n)
    whole = np.bincount(known.row, minlength=len(known.low)) > 0
    whole[known.row[~shown]] = False
    owner = np.zeros(len(known.low), dtype=np.int64)
    owner[known.row[shown]] = np.searchsorted(factor.offsets, known.column[shown], "right") - 1
    above = _directed(row, variable_of, total, known.high, whole)
    below = _directed(row, variable_of, -total, -known.low, whole)
    return _concatenate(
        [part._replace(owner=first_factor + owner[part.owner]) for part in (above, below)]
    )


def _of_slots(known: LinearConstraints, n_slots: int) -> tuple[BoolArray, IntArray]:
    """Return which entries belong to rows over slots only, and the rows of these entries."""
    other = np.zeros(len(known.low), dtype=bool)
    other[known.row[known.column >= n_slots]] = True
    shown = ~other[known.row]
    return shown, known.row[shown]


def _directed(
    row: IntArray, variable: IntArray, coefficient: FloatArray, high: FloatArray, whole: BoolArray
) -> _Rows:
    """Return the rows with a finite bound; their owners are the numbers of the constraints."""
    chosen = np.flatnonzero(whole & (high < np.inf))
    position = np.full(len(high), -1)
    position[chosen] = np.arange(len(chosen))
    mine = position[row] >= 0
    first = np.searchsorted(position[row[mine]], np.arange(len(chosen) + 1))
    return _Rows(chosen, high[chosen], first, variable[mine], coefficient[mine])


def _concatenate(parts: Sequence[_Rows]) -> _Rows:
    parts = [part for part in parts if len(part.high)] or list(parts[:1])
    if not parts:
        nothing, numbers = np.empty(0, dtype=np.int64), np.empty(0)
        return _Rows(nothing, numbers, np.zeros(1, dtype=np.int64), nothing, numbers)
    begin = np.cumsum([0, *(len(part.variable) for part in parts)])
    first = [part.first[:-1] + n for part, n in zip(parts, begin, strict=False)]
    return _Rows(
        np.concatenate([part.owner for part in parts]),
        np.concatenate([part.high for part in parts]),
        np.append(np.concatenate(first), begin[-1]),
        np.concatenate([part.variable for part in parts]),
        np.concatenate([part.coefficient for part in parts]),
    )
