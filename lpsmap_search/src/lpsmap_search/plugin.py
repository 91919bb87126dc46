"""The hooks of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lpsmap_core
from lpsmap_core import Factor
from lpsmap_search import DMVTree

if TYPE_CHECKING:
    import click

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_factors() -> list[type[Factor]]:
    """Return the factor types of this package."""
    return [DMVTree]


@lpsmap_core.hookimpl
def lpsmap_commands() -> list[click.Command]:
    """Return the command of this package."""
    from lpsmap_search.command import induce

    return [induce]
