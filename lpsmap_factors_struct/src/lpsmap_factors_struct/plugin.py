"""The plugin of this package: its hook implementation."""

from __future__ import annotations

import lpsmap_core
import lpsmap_factors_struct
from lpsmap_core import Factor

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_factors() -> list[type[Factor]]:
    """Return the factor types of this package."""
    return [getattr(lpsmap_factors_struct, name) for name in lpsmap_factors_struct.__all__]
