"""The linear constraints of a part, as the rows of a sparse matrix over its variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, Bucket, FloatArray, IntArray, Part, offsets_of, ranges

__all__ = ["ConstraintRows", "constraint_rows_of", "served_components"]

MOST_ROWS, MOST_ENTRIES = 1024, 2**24
"""Maximum number of rows of a component, and of entries of its dense matrix."""


class ConstraintRows(NamedTuple):
    """Constraints ``low <= A mu <= high``, in the order of their components."""

    offsets: IntArray
    """Row r has the entries ``offsets[r]:offsets[r + 1]``."""
    variable: IntArray
    """Variable of each entry. A variable can have several entries in a row."""
    coefficient: FloatArray
    """Coefficient of each entry; the largest magnitude of a row is 1."""
    low: FloatArray
    high: FloatArray
    component: IntArray
    """Component of each row."""
    bucket: IntArray
    """Bucket of the factor of each row."""
    factor: IntArray
    """Number of the factor of each row in its bucket."""


def _covered_components(part: Part) -> BoolArray:
    """Return for each component whether linear constraints describe all its factors."""
    covered = np.ones(part.n_components, dtype=bool)
    for bucket in part.buckets:
        described = np.array([_is_described(declaration) for declaration in bucket.declarations])
        covered[bucket.component[~described[bucket.declaration]]] = False
    return covered


def served_components(part: Part) -> BoolArray:
    """Return for each component whether `ConstraintRows` describe it, as a small dense matrix."""
    n_rows = np.bincount(part.derived(constraint_rows_of).component, minlength=part.n_components)
    small = (n_rows <= MOST_ROWS) & (n_rows * np.diff(part.first_variable) <= MOST_ENTRIES)
    served: BoolArray = part.derived(_covered_components) & small
    return served


def _is_described(factor: Factor) -> bool:
    """Return whether linear constraints on slots alone describe a declaration's factors."""
    if factor.n_additionals:
        return False
    constraints = factor.linear_constraints()
    return constraints is not None and not constraints.n_auxiliary


def constraint_rows_of(part: Part) -> ConstraintRows:
    """Return the rows of all covered components."""
    covered = part.derived(_covered_components)
    pieces = [
        _rows_of_declaration(bucket, b, number, covered)
        for b, bucket in enumerate(part.buckets)
        for number in range(len(bucket.declarations))
    ]
    pieces = [rows for rows in pieces if len(rows.low)] or [_NO_ROWS]
    counts = np.concatenate([np.diff(rows.offsets) for rows in pieces])
    others = [np.concatenate(arrays) for arrays in list(zip(*pieces, strict=True))[1:]]
    joined = ConstraintRows._make([offsets_of(counts), *others])
    return _select(joined, np.argsort(joined.component, kind="stable"))


_EMPTY = np.empty(0, dtype=np.int64)
_NO_ROWS = ConstraintRows._make(
    [offsets_of(_EMPTY), _EMPTY, *np.empty((3, 0)), _EMPTY, _EMPTY, _EMPTY]
)


def _rows_of_declaration(bucket: Bucket, b: int, number: int, covered: BoolArray) -> ConstraintRows:
    """Return the rows of a declaration's factors whose components are covered.

    A negated slot is 1 minus its variable, which changes the sign of entries and shifts the bounds.
    """
    declaration = bucket.declarations[number]
    factors = np.flatnonzero(bucket.declaration == number)
    factors = factors[covered[bucket.component[factors]]]
    if not factors.size:
        return _NO_ROWS
    constraints = declaration.linear_constraints()
    assert constraints is not None
    slots = ranges(declaration.offsets, bucket.row[factors])
    place, owner = np.full((2, declaration.offsets[-1]), -1)
    place[slots] = ranges(bucket.offsets, factors)
    owner[slots] = np.repeat(factors, np.diff(bucket.offsets)[factors])
    entries = np.flatnonzero((place[constraints.column] >= 0) & (constraints.coefficient != 0.0))
    entries = entries[np.argsort(constraints.row[entries], kind="stable")]
    row, column = constraints.row[entries], constraints.column[entries]
    slot, coefficient = place[column], constraints.coefficient[entries]
    negated, n = bucket.negated[slot], len(constraints.low)
    shift = np.bincount(row, np.where(negated, coefficient, 0.0), n).astype(np.float64)
    counts = np.bincount(row, minlength=n)
    low, high = constraints.low - shift, constraints.high - shift
    used = np.flatnonzero((counts > 0) & ((low > -np.inf) | (high < np.inf)))
    offsets = offsets_of(counts)
    first = owner[column][offsets[used]]
    component, factor = np.full((2, n), -1)
    component[used], factor[used] = bucket.component[first], first
    signed = np.where(negated, -coefficient, coefficient)
    owners = component, np.full(n, b), factor
    rows = ConstraintRows(offsets, bucket.variable[slot], signed, low, high, *owners)
    return _normalised(_select(rows, used))


def _select(rows: ConstraintRows, index: IntArray) -> ConstraintRows:
    """Return the rows at some positions, in the given order."""
    entries, offsets = ranges(rows.offsets, index), offsets_of(np.diff(rows.offsets)[index])
    of_entries = rows.variable[entries], rows.coefficient[entries]
    return ConstraintRows._make([offsets, *of_entries, *(array[index] for array in rows[3:])])


def _normalised(rows: ConstraintRows) -> ConstraintRows:
    """Return rows scaled to a largest magnitude of 1. No row may be empty."""
    scale = np.maximum.reduceat(np.abs(rows.coefficient), rows.offsets[:-1])
    return rows._replace(
        coefficient=rows.coefficient / np.repeat(scale, np.diff(rows.offsets)),
        low=rows.low / scale,
        high=rows.high / scale,
    )
