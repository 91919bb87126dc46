"""The hooks that plugins implement.

A plugin is an installed distribution with an entry point in the group ``lpsmap`` that names a
module. Its hook implementations return classes or values and have no side effects; each is called
when something of its kind is first asked for. `docs/how-to/hooks.md` has an example of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

from lpsmap_core.engine.backends import Backend
from lpsmap_core.engine.protocol import Engine
from lpsmap_core.graph import FactorGraph
from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.formats import FileFormat
from lpsmap_core.solution.decoder import Decoder
from lpsmap_core.solution.map_solver import MapSolver

if TYPE_CHECKING:
    import click

__all__ = [
    "API_VERSION",
    "OLDEST_API_VERSION",
    "PROJECT",
    "hookimpl",
    "hookspec",
    "lpsmap_backends",
    "lpsmap_commands",
    "lpsmap_decoders",
    "lpsmap_engines",
    "lpsmap_factors",
    "lpsmap_formats",
    "lpsmap_graphs",
    "lpsmap_solvers",
]

PROJECT = "lpsmap"

API_VERSION = 3
"""Version of the hooks and of what they return, raised by changes that break plugins.

A plugin's module says the one that it is written for: ``lpsmap_api_version = 3``.
"""

OLDEST_API_VERSION = 2
"""The oldest version whose plugins are registered.

What they use either works unchanged, or an error names what took its place.
"""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def lpsmap_factors() -> Sequence[type[Factor]]:  # type: ignore[empty-body]
    """Return the factor types of a pack; each is known by its class name."""


@hookspec
def lpsmap_graphs() -> Sequence[type[FactorGraph]]:  # type: ignore[empty-body]
    """Return the factor graphs of an adapter; each is known by its class name.

    Called only when a name is asked for that is no factor's, so that adapters may import slowly.
    """


@hookspec
def lpsmap_formats() -> Sequence[type[FileFormat]]:  # type: ignore[empty-body]
    """Return file formats of factor graphs; each is known by its suffixes."""


@hookspec
def lpsmap_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Return sub-commands of the command line ``lpsmap``; each is known by its name."""


@hookspec
def lpsmap_backends() -> Sequence[type[Backend]]:  # type: ignore[empty-body]
    """Return array libraries and their devices; each is known by its name.

    The conformance kit runs every closed form in array-API code on all of them.
    """


@hookspec
def lpsmap_engines() -> Sequence[type[Engine]]:  # type: ignore[empty-body]
    """Return engines, which solve graphs; each is known by its name.

    Called at the first solve or plan: engines say by `Engine.prefers` which components they take.
    """


@hookspec
def lpsmap_decoders() -> Sequence[type[Decoder]]:  # type: ignore[empty-body]
    """Return decoders, which find best assignments; each is known by its name.

    Called only when best assignments or a graph given evidence are asked for. One decoder can be
    used; where there are several, all but one have to be left out.
    """


@hookspec
def lpsmap_solvers() -> Sequence[type[MapSolver]]:  # type: ignore[empty-body]
    """Return solvers of whole graphs, which find best assignments; each is known by its name.

    Called only when an exact search asks for a solver by its name, or may take one. A solver says
    by `MapSolver.missing` what it lacks, so that it may be offered before that is installed.
    """
