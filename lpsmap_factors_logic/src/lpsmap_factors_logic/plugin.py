"""The plugin of this package: its hook implementation."""

from __future__ import annotations

import lpsmap_core
import lpsmap_factors_logic
from lpsmap_core import Factor, Start
from lpsmap_factors_logic.newton_start import LinearNewtonStart, NewtonStart

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_factors() -> list[type[Factor]]:
    """Return the factor types of this package."""
    return [getattr(lpsmap_factors_logic, name) for name in lpsmap_factors_logic.__all__]


@lpsmap_core.hookimpl
def lpsmap_starts() -> list[type[Start]]:
    """Return the start of components whose factors all bound counts."""
    return [NewtonStart, LinearNewtonStart]
