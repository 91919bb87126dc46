"""The hooks that plugins implement.

A plugin is an installed distribution with an entry point in the group ``lpsmap`` that names a
module. Its hook implementations return classes or values, and have no side effects. Each is called
when something of its kind is first needed. `docs/how-to/hooks.md` has an example of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:  # the registry is below what it registers
    import click

    from lpsmap_core import (
        Backend,
        Decoder,
        Engine,
        Factor,
        FactorGraph,
        FileFormat,
        MapSolver,
        Start,
    )

__all__ = [
    "API_VERSION",
    "PROJECT",
    "hookimpl",
    "lpsmap_backends",
    "lpsmap_commands",
    "lpsmap_decoders",
    "lpsmap_engines",
    "lpsmap_factors",
    "lpsmap_formats",
    "lpsmap_graphs",
    "lpsmap_solvers",
    "lpsmap_starts",
]

PROJECT = "lpsmap"

API_VERSION = 3
"""Version of the hooks and of their results, incremented by changes that break plugins.

A plugin's module declares the version that it is written for: ``lpsmap_api_version = 3``. Plugins
of another version are skipped.
"""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def lpsmap_factors() -> Sequence[type[Factor]]:  # type: ignore[empty-body]
    """Return the factor types of a pack, registered by class name."""


@hookspec
def lpsmap_graphs() -> Sequence[type[FactorGraph]]:  # type: ignore[empty-body]
    """Return the factor graphs of an adapter, registered by class name.

    Only called for names that are not factor types, so that adapters may be slow to import.
    """


@hookspec
def lpsmap_formats() -> Sequence[type[FileFormat]]:  # type: ignore[empty-body]
    """Return file formats of factor graphs, registered by suffixes."""


@hookspec
def lpsmap_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Return subcommands of the command ``lpsmap``, registered by name."""


@hookspec
def lpsmap_backends() -> Sequence[type[Backend]]:  # type: ignore[empty-body]
    """Return array libraries and their devices, registered by name.

    The conformance kit runs every closed form in array-API code on all of them.
    """


@hookspec
def lpsmap_engines() -> Sequence[type[Engine]]:  # type: ignore[empty-body]
    """Return engines, which solve graphs, registered by name.

    Called at the first solve or plan. `Engine.prefers` says which components an engine takes.
    """


@hookspec
def lpsmap_starts() -> Sequence[type[Start]]:  # type: ignore[empty-body]
    """Return starts, which find starting points of core's loop, registered by name.

    Called at the first solve of factors that share variables.
    """


@hookspec
def lpsmap_decoders() -> Sequence[type[Decoder]]:  # type: ignore[empty-body]
    """Return decoders, which find best assignments, registered by name.

    Only called for best assignments, or for graphs given evidence. Only one decoder can be used. If
    there are several, all but one must be disabled.
    """


@hookspec
def lpsmap_solvers() -> Sequence[type[MapSolver]]:  # type: ignore[empty-body]
    """Return solvers of whole graphs, which find best assignments, registered by name.

    Only called if an exact search names a solver, or may choose one. `MapSolver.missing` says which
    package a solver lacks, so that it can be registered before that package is installed.
    """
