"""What this package adds to lpsmap."""

from __future__ import annotations

import lpsmap_core
from lpsmap_core import Factor
from lpsmap_search import DMVTree

lpsmap_api_version = 2


@lpsmap_core.hookimpl
def lpsmap_factors() -> list[type[Factor]]:
    """Return the factor types of this package."""
    return [DMVTree]
