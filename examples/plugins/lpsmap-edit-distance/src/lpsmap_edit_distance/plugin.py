"""The hooks of this package; its entry point names this module."""

from __future__ import annotations

import lpsmap_core
from lpsmap_core import Factor
from lpsmap_edit_distance import EditScript

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_factors() -> list[type[Factor]]:
    """Return the factor types of this package."""
    return [EditScript]
