"""Factor types for lpsmap."""

from lpsmap_edit_distance.factor import EditScript

__all__ = ["EditScript"]
