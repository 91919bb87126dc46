"""The linear constraints of a part, as the rows of a sparse matrix over its columns.

The columns are the part's variables, then its additionals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor, LinearConstraints
from lpsmap_core.api import (
    BoolArray,
    FloatArray,
    IntArray,
    Part,
    constraints_of,
    offsets_of,
    ranges,
)


class ConstraintRows(NamedTuple):
    """Constraints ``low <= A x <= high``, in the order of their components."""

    offsets: IntArray
    """Row r has the entries ``offsets[r]:offsets[r + 1]``."""
    column: IntArray
    """Column of each entry. A column can have several entries in a row."""
    coefficient: FloatArray
    """Coefficient of each entry; the largest magnitude of a row is 1."""
    low: FloatArray
    high: FloatArray
    component: IntArray
    """Component of each row."""


def described(declaration: Factor) -> LinearConstraints | None:
    """Return the linear constraints of a declaration; None with auxiliary numbers, or without."""
    constraints = constraints_of(declaration)
    return None if constraints is None or constraints.n_auxiliary else constraints


def undescribed_factors(part: Part) -> IntArray:
    """Return the number of factors of each component that linear constraints do not describe."""
    count = np.zeros(part.n_components, dtype=np.int64)
    for bucket in part.buckets:
        unknown = np.array([described(declaration) is None for declaration in bucket.declarations])
        factors = unknown[bucket.declaration] & (bucket.component >= 0)
        np.add.at(count, bucket.component[factors], 1)
    return count


def constraint_rows_of(part: Part) -> ConstraintRows:
    """Return the rows of described factors.

    Components with two or more other factors have no rows.
    """
    has_rows, pieces = part.derived(undescribed_factors) <= 1, [_NO_ROWS]
    for b, bucket in enumerate(part.buckets):
        for number, declaration in enumerate(bucket.declarations):
            factors = np.flatnonzero(bucket.declaration == number)
            factors = factors[has_rows[bucket.component[factors]]]
            constraints = described(declaration) if factors.size else None
            if constraints is not None:
                columns = _columns_of(part, b, declaration, factors)
                pieces.append(_rows_of(constraints, columns))
    counts = np.concatenate([np.diff(rows.offsets) for rows in pieces])
    others = [np.concatenate(arrays) for arrays in list(zip(*pieces, strict=True))[1:]]
    joined = ConstraintRows._make([offsets_of(counts), *others])
    return _select(joined, np.argsort(joined.component, kind="stable"))


_EMPTY = np.empty(0, dtype=np.int64)
_NO_ROWS = ConstraintRows._make([offsets_of(_EMPTY), _EMPTY, *np.empty((3, 0)), _EMPTY])


class _Columns(NamedTuple):
    """The columns of a declaration's constraints; -1 for those of other factors."""

    number: IntArray
    """Number of the column in the part."""
    component: IntArray
    negated: BoolArray


def _columns_of(part: Part, b: int, declaration: Factor, factors: IntArray) -> _Columns:
    bucket, n_slots = part.buckets[b], int(declaration.offsets[-1])
    size = n_slots + declaration.n_factors * declaration.n_additionals
    number, component = np.full((2, size), -1)
    negated = np.zeros(size, dtype=bool)
    slots, links = ranges(declaration.offsets, bucket.row[factors]), ranges(bucket.offsets, factors)
    number[slots], negated[slots] = bucket.variable[links], bucket.negated[links]
    component[slots] = np.repeat(bucket.component[factors], np.diff(bucket.offsets)[factors])
    own = np.arange(declaration.n_additionals)
    entries = n_slots + bucket.row[factors][:, None] * declaration.n_additionals + own
    first = part.additionals_of(b).start + bucket.additional_offsets[factors]
    number[entries] = first[:, None] + part.n_variables + own
    component[entries] = bucket.component[factors][:, None]
    return _Columns(number, component, negated)


def _rows_of(constraints: LinearConstraints, columns: _Columns) -> ConstraintRows:
    """Return the rows of constraints over some columns of a declaration.

    A negated slot is 1 minus its variable, which changes the sign of entries and shifts the bounds.
    """
    n = len(constraints.low)
    present = columns.component[constraints.column] >= 0
    entries = np.flatnonzero(present & (constraints.coefficient != 0.0))
    entries = entries[np.argsort(constraints.row[entries], kind="stable")]
    row, column = constraints.row[entries], constraints.column[entries]
    coefficient, negated = constraints.coefficient[entries], columns.negated[column]
    shift = np.bincount(row, np.where(negated, coefficient, 0.0), n).astype(np.float64)
    counts = np.bincount(row, minlength=n)
    low, high = constraints.low - shift, constraints.high - shift
    used = np.flatnonzero((counts > 0) & ((low > -np.inf) | (high < np.inf)))
    offsets = offsets_of(counts)
    component = np.full(n, -1)
    component[used] = columns.component[column[offsets[used]]]
    signed = np.where(negated, -coefficient, coefficient)
    rows = ConstraintRows(offsets, columns.number[column], signed, low, high, component)
    return _normalised(_select(rows, used))


def _select(rows: ConstraintRows, index: IntArray) -> ConstraintRows:
    entries, offsets = ranges(rows.offsets, index), offsets_of(np.diff(rows.offsets)[index])
    of_entries = rows.column[entries], rows.coefficient[entries]
    return ConstraintRows._make([offsets, *of_entries, *(array[index] for array in rows[3:])])


def _normalised(rows: ConstraintRows) -> ConstraintRows:
    """Return rows scaled to a largest magnitude of 1. No row may be empty."""
    scale = np.maximum.reduceat(np.abs(rows.coefficient), rows.offsets[:-1])
    return rows._replace(
        coefficient=rows.coefficient / np.repeat(scale, np.diff(rows.offsets)),
        low=rows.low / scale,
        high=rows.high / scale,
    )


def matrices_of(
    rows: ConstraintRows, components: IntArray, place: IntArray, shape: tuple[int, int]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the (n, *shape) matrices of components, with padding, and (n, n_rows) bounds.

    There is one matrix for all if they are equal. `place` is the place of each column in the matrix
    of its component.
    """
    n = len(components)
    first = np.searchsorted(rows.component, np.arange(components.max(initial=-1) + 2))
    selected, counts = ranges(first, components), np.diff(first)[components]
    instance = np.repeat(np.arange(n), counts)
    row = selected - first[components][instance]
    low, high = np.full((2, n, shape[0]), [[[-np.inf]], [[np.inf]]])
    low[instance, row], high[instance, row] = rows.low[selected], rows.high[selected]
    entries, sizes = ranges(rows.offsets, selected), np.diff(rows.offsets)[selected]
    of_entries, coefficient = np.repeat(instance, sizes), rows.coefficient[entries]
    local = np.stack([np.repeat(row, sizes), place[rows.column[entries]]])
    if n and len(set(np.bincount(of_entries, minlength=n).tolist())) == 1:
        of_rows, of_columns, numbers = (x.reshape(n, -1) for x in (*local, coefficient))
        if all((x == x[:1]).all() for x in (of_rows, of_columns, numbers)):
            n, of_entries = 1, of_entries[: numbers.shape[1]]
    matrix = np.zeros((n, *shape))
    k = len(of_entries)
    np.add.at(matrix, (of_entries, *local[:, :k]), coefficient[:k])
    return matrix, low, high
