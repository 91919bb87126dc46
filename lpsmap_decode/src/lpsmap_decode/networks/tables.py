"""Factor types that describe their factors as tables over multi-state variables."""

from __future__ import annotations

from lpsmap_core import Factor
from lpsmap_core.api import Bucket
from lpsmap_dynamic import Tables

__all__ = ["has_tables", "tables_of"]


def has_tables(factor_type: type[Factor]) -> bool:
    """Return whether a factor type describes its factors as tables.

    It does so with a static method ``as_tables(factors)``, which returns the fields of `Tables`, or
    None if the factors are not tables.
    """
    return getattr(factor_type, "as_tables", None) is not None


def tables_of(bucket: Bucket) -> Tables | None:
    """Return the factors of a bucket as tables; None if they are not tables."""
    if not has_tables(bucket.type):
        return None
    fields = bucket.type.as_tables(bucket.factors)  # type: ignore[attr-defined]
    return None if fields is None else Tables(*fields)
