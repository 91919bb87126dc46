"""Redundant factors, whose constraints are implied by their size, or by another factor.

Given ``e . x <= h`` and ``0 <= x <= 1``, the row ``c . x <= b`` is redundant if ``h`` plus the sum
of all ``max(c_i - e_i, 0)`` is at most ``b``. Redundancy for other reasons, such as several rows
together, is not detected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, build_layout
from lpsmap_decode.constraints import FactorRows, factor_rows, known_constraints

__all__ = ["count_redundant", "find_redundant"]

MAX_PAIRS = 5_000_000
"""Maximum number of pairs of rows with a common variable. If there are more, none is compared."""

SUM_TOLERANCE = 1e-9
"""Rounding error of a sum, relative to 1 plus the bound."""


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
    n_variables = max((int(f.variables.index.max(initial=-1)) + 1 for f in declarations), default=0)
    part = build_layout(n_variables, declarations).part
    known = factor_rows(part, lambda f: known_constraints(f)[0])
    rows = _upper_rows(known.over(part.n_variables))
    candidates = _described(part)
    violable = _row_maxima(rows) > rows.high + SUM_TOLERANCE * (1.0 + np.abs(rows.high))
    row, by = _implied(rows, violable & candidates[rows.factor])
    redundant = _never_binding(candidates, rows.factor, violable, row)
    # A row must be implied by a row that stays, or by one whose own implication precedes it.
    stays = ~redundant[rows.factor[by]] | (rows.factor[by] < rows.factor[row])
    redundant = _never_binding(candidates, rows.factor, violable, row[stays])
    found = {id(f): np.zeros(f.n_factors, dtype=bool) for f in declarations}
    for b, bucket in enumerate(part.buckets):
        own = redundant[slice(*part.spans.first_factor[b : b + 2])]
        for d, declaration in enumerate(bucket.declarations):
            mine = bucket.declaration == d
            found[id(declaration)][bucket.row[mine]] = own[mine]
    return [found[id(f)] for f in declarations]


def _described(part: Part) -> BoolArray:
    """Return which factors of a part constrain variables, and nothing but their rows does."""
    pieces = [np.empty(0, dtype=bool)]
    for bucket in part.buckets:
        flags = []
        for declaration in bucket.declarations:
            known, exact = known_constraints(declaration)
            # a type without constraints, such as free bits, has another purpose
            constrains = known is not None and exact and len(known.low) > 0
            flags.append(constrains and not declaration.n_additionals)
        pieces.append(np.array(flags)[bucket.declaration])
    return np.concatenate(pieces)


def _upper_rows(known: FactorRows) -> FactorRows:
    """Return all upper sides of rows, and then all lower sides, in opposite signs."""
    n = len(known.low)
    sides = known._replace(
        row=np.append(known.row, n + known.row),
        column=np.tile(known.column, 2),
        coefficient=np.append(known.coefficient, -known.coefficient),
        low=np.full(2 * n, -np.inf),
        high=np.append(known.high, -known.low),
        factor=np.tile(known.factor, 2),
    )
    return sides.select(sides.high < np.inf)


def _never_binding(
    candidates: BoolArray, factor: IntArray, violable: BoolArray, implied: IntArray
) -> BoolArray:
    """Return the candidates of which all rows that can be violated are implied by others."""
    binding, redundant = violable.copy(), candidates.copy()
    binding[implied] = False
    redundant[factor[binding]] = False
    return redundant


def _row_maxima(rows: FactorRows) -> FloatArray:
    """Return the largest possible sum of every row."""
    most = np.maximum(rows.coefficient, 0.0)
    return np.bincount(rows.row, most, len(rows.high)).astype(np.float64)


def _implied(rows: FactorRows, asked: BoolArray) -> tuple[IntArray, IntArray]:
    """Return pairs of rows, the first one `asked` for, where the second row implies the first."""
    none = np.empty(0, dtype=np.int64)
    order, entry = np.argsort(rows.column, kind="stable"), np.flatnonzero(asked[rows.row])
    begin = np.searchsorted(rows.column[order], rows.column[entry], side="left")
    end = np.searchsorted(rows.column[order], rows.column[entry], side="right")
    if (end - begin).sum() > MAX_PAIRS or not entry.size:
        return none, none
    mine = np.repeat(entry, end - begin)
    ends = np.cumsum(end - begin)
    theirs = order[np.arange(ends[-1]) + np.repeat(begin - np.append(0, ends[:-1]), end - begin)]
    c, e = rows.coefficient[mine], rows.coefficient[theirs]
    pairs, at = np.unique(rows.row[np.stack([mine, theirs])], axis=1, return_inverse=True)
    shared = np.maximum(c - e, 0.0) - np.maximum(c, 0.0) - np.maximum(-e, 0.0)
    excess = np.bincount(at.reshape(-1), shared, minlength=pairs.shape[1])
    row, by = pairs
    excess += _row_maxima(rows)[row] + _row_maxima(rows._replace(coefficient=-rows.coefficient))[by]
    allowed = rows.high[row] + SUM_TOLERANCE * (1.0 + np.abs(rows.high[row]))
    implied = (rows.high[by] + excess <= allowed) & (rows.factor[row] != rows.factor[by])
    return row[implied], by[implied]
