"""Factors as tables over variables of several states, as the method `as_tables` describes them."""

from __future__ import annotations

from typing import NamedTuple

from lpsmap_core import Factor
from lpsmap_core.api import Bucket, FloatArray, IntArray

__all__ = ["Tables", "has_tables", "tables_of"]


class Tables(NamedTuple):
    """What the structures of many factors are, as tables over blocks of their slots.

    A block is a variable of several states, one for each of its slots that is on. The slots of a
    factor are its blocks, one after the other. A table has an entry for every choice of states, the
    last block's the fastest.

    Attributes
    ----------
    n_blocks
        For each factor, its number of blocks.
    block_sizes
        For each block of all factors, its number of slots.
    always
        Whether exactly one slot of a block is on. Otherwise none may be, which is one more state,
        the last.
    fixed
        For each entry of all tables, 0, or ``-inf`` if no structure is like that.
    additional
        For each entry, which additional of the bucket scores it, -1 for none.
    """

    n_blocks: IntArray
    block_sizes: IntArray
    always: bool
    fixed: FloatArray
    additional: IntArray


def has_tables(factor_type: type[Factor]) -> bool:
    """Return whether a factor type says what its factors are as tables.

    It does so by a static method ``as_tables(factors)``, which returns the fields of `Tables`, or
    None where the factors are no tables.
    """
    return getattr(factor_type, "as_tables", None) is not None


def tables_of(bucket: Bucket) -> Tables | None:
    """Return a bucket's factors as tables; None if they are none."""
    if not has_tables(bucket.type):
        return None
    fields = bucket.type.as_tables(bucket.factors)  # type: ignore[attr-defined]
    return None if fields is None else Tables(*fields)
