"""The hooks of this package; its entry point names this module."""

from __future__ import annotations

import lpsmap_core
from lpsmap_cpsat import CpSatSolver
from lpsmap_decode import MapSolver

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_solvers() -> list[type[MapSolver]]:
    """Return the solvers of this package."""
    return [CpSatSolver]
