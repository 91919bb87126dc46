"""Linear constraints of factors: which are known, and the rows of all factors of a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor, LinearConstraints
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Part,
    PartlyConstrained,
    constraints_of,
    ranges,
)

__all__ = ["FactorRows", "factor_rows", "known_constraints"]


class FactorRows(NamedTuple):
    """Rows ``low <= A x <= high`` that all structures of the factors of a part meet.

    The columns are the variables of the part, its additionals, and auxiliary numbers.
    """

    row: IntArray
    """For each entry of A, its row, in increasing order; each place occurs once."""
    column: IntArray
    coefficient: FloatArray
    low: FloatArray
    high: FloatArray
    factor: IntArray
    """For each row, its factor in the part; -1 for a row of auxiliary numbers alone."""
    n_columns: int

    def over(self, n: int) -> FactorRows:
        """Return the rows whose entries are all in the first `n` columns."""
        kept = np.ones(len(self.low), dtype=bool)
        kept[self.row[self.column >= n]] = False
        return self.select(kept)._replace(n_columns=n)

    def select(self, kept: BoolArray) -> FactorRows:
        """Return some of the rows."""
        entry, place = kept[self.row], np.cumsum(kept) - 1
        return FactorRows(
            place[self.row[entry]],
            self.column[entry],
            self.coefficient[entry],
            self.low[kept],
            self.high[kept],
            self.factor[kept],
            self.n_columns,
        )


def known_constraints(
    factor: Factor, with_additionals: bool = True
) -> tuple[LinearConstraints | None, bool]:
    """Return constraints that all structures of a declaration meet, and whether they are exact.

    Without additionals, those on variables alone are preferred.
    """
    exact = constraints_of(factor)
    is_exact = exact is not None and not exact.n_auxiliary
    if isinstance(factor, PartlyConstrained) and (exact is None or not with_additionals):
        return constraints_of(factor, "necessary_constraints"), is_exact
    return exact, is_exact


def factor_rows(part: Part, known_of: Callable[[Factor], LinearConstraints | None]) -> FactorRows:
    """Return the rows of all factors of a part.

    Parameters
    ----------
    part
        The part.
    known_of
        Returns the constraints of a declaration, or None.
    """
    none, pieces, n_rows = np.empty(0, dtype=np.int64), [], 0
    n_columns = part.n_variables + part.n_additionals
    for b, bucket in enumerate(part.buckets):
        for d, declaration in enumerate(bucket.declarations):
            mine, known = np.flatnonzero(bucket.declaration == d), known_of(declaration)
            if known is not None and mine.size:
                rows = _rows_of_declaration(part, b, mine, declaration, known, n_columns)
                pieces.append(rows._replace(row=rows.row + n_rows))
                n_rows, n_columns = n_rows + len(rows.low), rows.n_columns
    row = np.concatenate([none, *(piece.row for piece in pieces)])
    column = np.concatenate([none, *(piece.column for piece in pieces)])
    a = np.concatenate([np.empty(0), *(piece.coefficient for piece in pieces)])
    # a variable may fill several slots of a factor
    places, which = np.unique(row * n_columns + column, return_inverse=True)
    return FactorRows(
        places // n_columns,
        places % n_columns,
        np.bincount(which.reshape(-1), a, len(places)).astype(np.float64),
        np.concatenate([np.empty(0), *(piece.low for piece in pieces)]),
        np.concatenate([np.empty(0), *(piece.high for piece in pieces)]),
        np.concatenate([none, *(piece.factor for piece in pieces)]),
        n_columns,
    )


def _rows_of_declaration(
    part: Part,
    b: int,
    mine: IntArray,
    declaration: Factor,
    known: LinearConstraints,
    first_auxiliary: int,
) -> FactorRows:
    """Return the rows of a declaration's factors `mine` of bucket `b`; columns may occur twice.

    A negated slot is 1 minus its variable.
    """
    bucket, spans = part.buckets[b], part.spans
    row, n_own, n_slots = bucket.row[mine], declaration.n_additionals, int(declaration.offsets[-1])
    n_plain = n_slots + declaration.n_factors * n_own
    # for each number of the declaration, its column and its factor; -1 for those of other factors
    column, factor = np.full((2, n_plain + known.n_auxiliary), -1)
    turned = np.zeros(len(column), dtype=bool)
    slots, links = ranges(declaration.offsets, row), ranges(bucket.offsets, mine)
    column[slots], turned[slots] = bucket.variable[links], bucket.negated[links]
    factor[slots] = np.repeat(spans.first_factor[b] + mine, np.diff(bucket.offsets)[mine])
    own = n_slots + row[:, None] * n_own + np.arange(n_own)
    begin = part.n_variables + spans.first_additional[b] + bucket.additional_offsets[mine]
    column[own], factor[own] = (
        begin[:, None] + np.arange(n_own),
        spans.first_factor[b] + mine[:, None],
    )
    end = first_auxiliary + known.n_auxiliary
    column[n_plain:] = np.arange(first_auxiliary, end)
    a, flipped = known.coefficient, turned[known.column]
    shift = np.bincount(known.row, np.where(flipped, a, 0.0), len(known.low))
    of_row = np.full(len(known.low), -1)
    np.maximum.at(of_row, known.row, factor[known.column])
    rows = FactorRows(
        known.row,
        column[known.column],
        np.where(flipped, -a, a),
        known.low - shift,
        known.high - shift,
        of_row,
        end,
    )
    kept = np.bincount(known.row, minlength=len(known.low)) > 0
    kept[rows.row[rows.column < 0]] = False
    return rows.select(kept)
