"""Factor types for lpsmap."""

from lpsmap_equal.factor import Equal

__all__ = ["Equal"]
