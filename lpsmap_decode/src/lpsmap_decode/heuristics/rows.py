"""Linear rows that every assignment of a component meets, and which factors they describe."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core.api import BoolArray, FloatArray, IntArray, Part, offsets_of, ranges
from lpsmap_decode.constraints import FactorRows, factor_rows, known_constraints

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
    exact = np.zeros(len(part.spans.component), dtype=bool)
    for b, bucket in enumerate(part.buckets):
        described = np.array([known_constraints(d)[1] for d in bucket.declarations])
        exact[slice(*part.spans.first_factor[b : b + 2])] = described[bucket.declaration]
    with_additionals = bool(exact.all())
    gains = np.concatenate([eta, eta_v if with_additionals else eta_v[:0]])
    gains = np.where(np.isneginf(gains), 0.0, gains)
    known = factor_rows(part, lambda factor: known_constraints(factor, with_additionals)[0])
    return _with_objective(known.over(len(gains)), gains), exact


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


def _with_objective(known: FactorRows, gains: FloatArray) -> Rows:
    """Return the rows that some zeros and ones violate, and the objective."""
    least = np.bincount(known.row, np.minimum(known.coefficient, 0.0), len(known.low))
    most = np.bincount(known.row, np.maximum(known.coefficient, 0.0), len(known.low))
    known = known.select((least < known.low) | (most > known.high))
    n_rows, there, scored = len(known.low) + 1, known.coefficient != 0.0, np.flatnonzero(gains)
    row = np.append(known.row[there], np.full(len(scored), n_rows - 1))
    column = np.append(known.column[there], scored)
    a = np.append(known.coefficient[there], gains[scored])
    order, by_column = np.lexsort((-np.abs(a), row)), np.argsort(column, kind="stable")
    return Rows(
        first=offsets_of(np.bincount(row, minlength=n_rows)),
        column=column[order],
        coefficient=a[order],
        low=np.append(known.low, -np.inf),
        high=np.append(known.high, np.inf),
        slack=np.asarray(ROUNDING * (1.0 + np.bincount(row, np.abs(a), minlength=n_rows))),
        first_of_column=offsets_of(np.bincount(column, minlength=len(gains))),
        row=row[by_column],
        coefficient_of_column=a[by_column],
    )
