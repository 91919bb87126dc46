"""The hooks of this package; its entry point names this module."""

from __future__ import annotations

import lpsmap_core
from lpsmap_core import Engine
from lpsmap_rows import RowsEngine

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_engines() -> list[type[Engine]]:
    """Return the engines of this package."""
    return [RowsEngine]
