"""Linear rows that every assignment of a component meets, and which factors they describe."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor, LinearConstraints
from lpsmap_core.api import (
    BoolArray,
    Bucket,
    FloatArray,
    IntArray,
    Part,
    offsets_of,
    ranges,
)
from lpsmap_decode.constraints import known_constraints, summed

__all__ = ["Rows", "restricted", "rows_of"]

ROUNDING = 1e-12
"""Tolerance of a row, relative to the sum of the magnitudes of its entries."""


class Rows(NamedTuple):
    """Rows ``low <= A x <= high``; the columns are variables, then additionals.

    The last row is the objective, whose lower side is raised with the best score.
    """

    first: IntArray
    """(rows + 1,) row r has the entries ``first[r]:first[r + 1]``, the largest magnitudes first."""
    column: IntArray
    coefficient: FloatArray
    low: FloatArray
    high: FloatArray
    slack: FloatArray
    """For each row, its tolerance."""
    first_of_column: IntArray
    """(columns + 1,) the same entries by column."""
    row: IntArray
    coefficient_of_column: FloatArray


class _Entries(NamedTuple):
    """Rows of a declaration, by its links and additionals in the part."""

    row: IntArray
    column: IntArray
    coefficient: FloatArray
    low: FloatArray
    high: FloatArray


def rows_of(part: Part, eta: FloatArray, eta_v: FloatArray) -> tuple[Rows, BoolArray]:
    """Return the rows of a component, and for each factor whether its rows describe it.

    Additionals are columns only if rows describe all factors.

    Parameters
    ----------
    part
        A part of one component.
    eta, eta_v
        Scores of its variables and additionals; those of ``-inf`` are left out of the objective.
    """
    n, n_additionals = part.n_variables, part.n_additionals
    exact = np.zeros(len(part.spans.component), dtype=bool)
    described = [known_constraints(d)[1] for bucket in part.buckets for d in bucket.declarations]
    if not all(described):
        n_additionals, eta_v = 0, eta_v[:0]
    column_of = np.concatenate([part.link_variable, n + np.arange(n_additionals)])
    flipped = np.concatenate([part.negated, np.zeros(n_additionals, dtype=bool)])
    pieces = []
    for b, bucket in enumerate(part.buckets):
        first_factor = part.spans.first_factor[b]
        for d, declaration in enumerate(bucket.declarations):
            mine = np.flatnonzero(bucket.declaration == d)
            known, is_exact = known_constraints(declaration, n_additionals > 0)
            exact[first_factor + mine] = is_exact
            if known is not None and mine.size:
                pieces.append(
                    _entries(part, b, bucket, declaration, mine, known, n_additionals > 0)
                )
    gains = np.concatenate([eta, eta_v])
    gains = np.where(np.isneginf(gains), 0.0, gains)
    return _assembled(pieces, column_of, flipped, gains), exact


def restricted(rows: Rows, values: FloatArray, sums: FloatArray, free: IntArray) -> Rows:
    """Return the rows over some columns, given values of all others.

    Parameters
    ----------
    rows, values, sums
        The rows, the values of all columns, and the sums of all rows at these values.
    free
        The columns that remain, sorted.
    """
    entry = ranges(rows.first_of_column, free)
    n_entries = np.diff(rows.first_of_column)[free]
    column = np.repeat(np.arange(len(free)), n_entries)
    a, objective = rows.coefficient_of_column[entry], len(rows.low) - 1
    kept, row = np.unique(np.append(rows.row[entry], objective), return_inverse=True)
    row = row.reshape(-1)[:-1]
    rest = sums[kept] - np.bincount(row, a * values[free][column], minlength=len(kept))
    order = np.lexsort((-np.abs(a), row))
    return Rows(
        first=offsets_of(np.bincount(row, minlength=len(kept))),
        column=column[order],
        coefficient=a[order],
        low=rows.low[kept] - rest,
        high=rows.high[kept] - rest,
        slack=rows.slack[kept],
        first_of_column=offsets_of(n_entries),
        row=row,
        coefficient_of_column=a,
    )


def _entries(
    part: Part,
    b: int,
    bucket: Bucket,
    declaration: Factor,
    mine: IntArray,
    known: LinearConstraints,
    with_additionals: bool,
) -> _Entries:
    """Return the rows of a declaration's factors `mine`, without those of auxiliary numbers."""
    rows, n_slots = bucket.row[mine], int(declaration.offsets[-1])
    n_own = declaration.n_additionals
    number = np.full(n_slots + declaration.n_factors * n_own + known.n_auxiliary, -1)
    links = part.spans.first_link[b] + ranges(bucket.offsets, mine)
    number[ranges(declaration.offsets, rows)] = links
    if n_own and with_additionals:
        theirs = n_slots + (rows[:, None] * n_own + np.arange(n_own)).reshape(-1)
        first = part.n_links + part.spans.first_additional[b]
        number[theirs] = first + ranges(bucket.additional_offsets, mine)
    dropped = np.zeros(len(known.low), dtype=bool)
    dropped[known.row[number[known.column] < 0]] = True
    dropped[np.bincount(known.row, minlength=len(dropped)) == 0] = True
    kept = ~dropped[known.row]
    place = np.cumsum(~dropped) - 1
    return _Entries(
        place[known.row[kept]],
        number[known.column[kept]],
        known.coefficient[kept],
        known.low[~dropped],
        known.high[~dropped],
    )


def _assembled(
    pieces: list[_Entries], column_of: IntArray, flipped: BoolArray, gains: FloatArray
) -> Rows:
    """Return the rows of all pieces over columns, and the objective."""
    none, n_columns = np.empty(0, dtype=np.int64), len(gains)
    begin = np.cumsum([0, *(len(piece.low) for piece in pieces)])
    n_rows = int(begin[-1])
    row = np.concatenate([none, *(p.row + at for p, at in zip(pieces, begin, strict=False))])
    link = np.concatenate([none, *(p.column for p in pieces)])
    a = np.concatenate([np.empty(0), *(p.coefficient for p in pieces)])
    low = np.concatenate([np.empty(0), *(p.low for p in pieces)])
    high = np.concatenate([np.empty(0), *(p.high for p in pieces)])
    shift = np.bincount(row, np.where(flipped[link], a, 0.0), minlength=n_rows)
    a = np.where(flipped[link], -a, a)
    row, column, a = summed(row, column_of[link], a, n_columns)
    binding = _binding(row, a, low - shift, high - shift)
    kept = binding[row] & (a != 0.0)
    scored = np.flatnonzero(gains)
    row = np.concatenate([(np.cumsum(binding) - 1)[row[kept]], np.full(len(scored), binding.sum())])
    column, a = np.concatenate([column[kept], scored]), np.concatenate([a[kept], gains[scored]])
    n_rows = int(binding.sum()) + 1
    order, by_column = np.lexsort((-np.abs(a), row)), np.argsort(column, kind="stable")
    return Rows(
        first=offsets_of(np.bincount(row, minlength=n_rows)),
        column=column[order],
        coefficient=a[order],
        low=np.append((low - shift)[binding], -np.inf),
        high=np.append((high - shift)[binding], np.inf),
        slack=np.asarray(ROUNDING * (1.0 + np.bincount(row, np.abs(a), minlength=n_rows))),
        first_of_column=offsets_of(np.bincount(column, minlength=n_columns)),
        row=row[by_column],
        coefficient_of_column=a[by_column],
    )


def _binding(row: IntArray, a: FloatArray, low: FloatArray, high: FloatArray) -> BoolArray:
    """Return which rows some zeros and ones violate."""
    least = np.bincount(row, np.minimum(a, 0.0), minlength=len(low))
    most = np.bincount(row, np.maximum(a, 0.0), minlength=len(low))
    violable: BoolArray = (least < low) | (most > high)
    return violable
