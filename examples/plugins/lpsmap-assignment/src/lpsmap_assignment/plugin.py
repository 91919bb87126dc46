"""The hooks of this package; its entry point names this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lpsmap_core
from lpsmap_assignment import AssignmentFormat
from lpsmap_decode import FileFormat

if TYPE_CHECKING:
    import click

lpsmap_api_version = 3


@lpsmap_core.hookimpl
def lpsmap_formats() -> list[type[FileFormat]]:
    """Return the file formats of this package."""
    return [AssignmentFormat]


@lpsmap_core.hookimpl
def lpsmap_commands() -> list[click.Command]:
    """Return the commands of this package."""
    from lpsmap_assignment.command import assign

    return [assign]
