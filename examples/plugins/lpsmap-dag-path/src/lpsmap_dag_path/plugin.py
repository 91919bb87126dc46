"""The hooks of this package; its entry point names this module."""

from __future__ import annotations

import lpsmap_core
from lpsmap_core import Factor
from lpsmap_dag_path import DagPath

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_factors() -> list[type[Factor]]:
    """Return the factor types of this package."""
    return [DagPath]
