"""The linear constraints of a part, as rows over its variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpsmap_core import Factor
from lpsmap_core.api import BoolArray, Bucket, FloatArray, IntArray, Part, offsets_of, ranges

__all__ = ["Rows", "rows_of", "served_components"]

MOST_ROWS, MOST_ENTRIES = 1024, 2**24
"""Rows of a component, and entries of its dense matrix; larger ones are left to sparse methods."""


class Rows(NamedTuple):
    """Constraints ``low <= A mu <= high``, in the order of their components."""

    offsets: IntArray
    """Row r has the entries ``offsets[r]:offsets[r + 1]``."""
    variable: IntArray
    """For each entry its variable. A variable can have several entries in a row."""
    coefficient: FloatArray
    """For each entry; the largest magnitude of a row is 1."""
    low: FloatArray
    high: FloatArray
    component: IntArray
    """For each row; likewise the bucket and the number in it of the factor that it is of."""
    bucket: IntArray
    factor: IntArray


def _covered_components(part: Part) -> BoolArray:
    """Return for each component whether linear constraints describe all its factors."""
    covered = np.ones(part.n_components, dtype=bool)
    for bucket in part.buckets:
        known = np.array([_is_described(declaration) for declaration in bucket.declarations])
        covered[bucket.component[~known[bucket.declaration]]] = False
    return covered


def served_components(part: Part) -> BoolArray:
    """Return for each component whether `Rows` describe it, and a dense matrix of them is small."""
    n_rows = np.bincount(part.derived(rows_of).component, minlength=part.n_components)
    small = (n_rows <= MOST_ROWS) & (n_rows * np.diff(part.first_variable) <= MOST_ENTRIES)
    found: BoolArray = part.derived(_covered_components) & small
    return found


def _is_described(factor: Factor) -> bool:
    """Return whether linear constraints on slots are all there is of a declaration's factors."""
    if factor.n_additionals:
        return False
    known = factor.linear_constraints()
    return known is not None and not known.n_auxiliary


def rows_of(part: Part) -> Rows:
    """Return the rows of all components that `_covered_components` names."""
    covered = part.derived(_covered_components)
    found = [
        _rows_of_declaration(bucket, b, number, covered)
        for b, bucket in enumerate(part.buckets)
        for number in range(len(bucket.declarations))
    ]
    found = [rows for rows in found if len(rows.low)] or [_NO_ROWS]
    counts = np.concatenate([np.diff(rows.offsets) for rows in found])
    others = [np.concatenate(arrays) for arrays in list(zip(*found, strict=True))[1:]]
    joined = Rows._make([offsets_of(counts), *others])
    return _chosen(joined, np.argsort(joined.component, kind="stable"))


_NONE = np.empty(0, dtype=np.int64)
_NO_ROWS = Rows._make([offsets_of(_NONE), _NONE, *np.empty((3, 0)), _NONE, _NONE, _NONE])


def _rows_of_declaration(bucket: Bucket, b: int, number: int, covered: BoolArray) -> Rows:
    """Return the rows of a declaration's factors, as far as their components are covered.

    A negated slot is 1 less its variable, which changes the sign of entries and moves the bounds.
    """
    declaration = bucket.declarations[number]
    mine = np.flatnonzero(bucket.declaration == number)
    mine = mine[covered[bucket.component[mine]]]
    if not mine.size:
        return _NO_ROWS
    known = declaration.linear_constraints()
    assert known is not None
    here, there = ranges(bucket.offsets, mine), ranges(declaration.offsets, bucket.row[mine])
    place, owner = np.full((2, declaration.offsets[-1]), -1)
    place[there], owner[there] = here, np.repeat(mine, np.diff(bucket.offsets)[mine])
    kept = np.flatnonzero((place[known.column] >= 0) & (known.coefficient != 0.0))
    kept = kept[np.argsort(known.row[kept], kind="stable")]
    row, slot = known.row[kept], place[known.column[kept]]
    negated, entry = bucket.negated[slot], known.coefficient[kept]
    n = len(known.low)
    moved = np.bincount(row, np.where(negated, entry, 0.0), n).astype(np.float64)
    counts = np.bincount(row, minlength=n)
    low, high = known.low - moved, known.high - moved
    used = np.flatnonzero((counts > 0) & ((low > -np.inf) | (high < np.inf)))
    offsets = offsets_of(counts)
    first = owner[known.column[kept]][offsets[used]]
    component, factor = np.full((2, n), -1)
    component[used], factor[used] = bucket.component[first], first
    signed = np.where(negated, -entry, entry)
    places = component, np.full(n, b), factor
    rows = Rows(offsets, bucket.variable[slot], signed, low, high, *places)
    return _normalised(_chosen(rows, used))


def _chosen(rows: Rows, which: IntArray) -> Rows:
    """Return some rows, in the order given."""
    entries, offsets = ranges(rows.offsets, which), offsets_of(np.diff(rows.offsets)[which])
    of_entries = rows.variable[entries], rows.coefficient[entries]
    return Rows._make([offsets, *of_entries, *(array[which] for array in rows[3:])])


def _normalised(rows: Rows) -> Rows:
    """Return rows whose largest magnitude is 1; none of them is empty."""
    scale = np.maximum.reduceat(np.abs(rows.coefficient), rows.offsets[:-1])
    return rows._replace(
        coefficient=rows.coefficient / np.repeat(scale, np.diff(rows.offsets)),
        low=rows.low / scale,
        high=rows.high / scale,
    )
