"""Core's own hook implementations, registered like those of a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.protocol import Backend, Engine, NumpyBackend
from lpsmap_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

lpsmap_api_version = 3


@hookimpl
def lpsmap_backends() -> list[type[Backend]]:
    """Return NumPy, the array library that core uses."""
    return [NumpyBackend]


@hookimpl
def lpsmap_engines() -> list[type[Engine]]:
    """Return core's own engine."""
    return [CompiledEngine]


@hookimpl
def lpsmap_commands() -> list[click.Command]:
    """Return the commands for authors of plugins."""
    from lpsmap_core.command.cli import main
    from lpsmap_core.testing.check_command import check

    return [*main.commands.values(), check]
