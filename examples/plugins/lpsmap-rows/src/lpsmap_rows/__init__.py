"""An engine for lpsmap: graphs as rows of linear constraints."""

from lpsmap_rows.engine import RowsEngine

__all__ = ["RowsEngine"]
