"""The hooks of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lpsmap_core
from lpsmap_core import Engine, Start
from lpsmap_decode import (
    Decoder,
    FgFormat,
    FileFormat,
    HighsSolver,
    JsonFormat,
    MapSolver,
    MaxSatSolver,
    UaiFormat,
    WcnfFormat,
    hookspecs,
)

if TYPE_CHECKING:
    import click

lpsmap_api_version = 3
lpsmap_hookspecs = [hookspecs]


@lpsmap_core.hookimpl
def lpsmap_formats() -> list[type[FileFormat]]:
    """Return the file formats of this package."""
    return [FgFormat, JsonFormat, UaiFormat, WcnfFormat]


@lpsmap_core.hookimpl
def lpsmap_engines() -> list[type[Engine]]:
    """Return the engine for networks of tables."""
    from lpsmap_decode.messages.message_engine import MessageEngine

    return [MessageEngine]


@lpsmap_core.hookimpl
def lpsmap_starts() -> list[type[Start]]:
    """Return the start of LP-MAP for count constraints."""
    from lpsmap_decode.counts.vertex_start import VertexStart

    return [VertexStart]


@lpsmap_core.hookimpl
def lpsmap_decoders() -> list[type[Decoder]]:
    """Return the decoder of this package."""
    from lpsmap_decode.exact_decoder import ExactDecoder

    return [ExactDecoder]


@lpsmap_core.hookimpl
def lpsmap_solvers() -> list[type[MapSolver]]:
    """Return the solvers that the extras ``highs`` and ``maxsat`` install."""
    return [HighsSolver, MaxSatSolver]


@lpsmap_core.hookimpl
def lpsmap_commands() -> list[click.Command]:
    """Return the commands of this package."""
    from lpsmap_decode.command.decode_files import decode
    from lpsmap_decode.command.explain import explain
    from lpsmap_decode.command.models import convert, info
    from lpsmap_decode.command.solve_file import solve

    return [convert, decode, explain, info, solve]
