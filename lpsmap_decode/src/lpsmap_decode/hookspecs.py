"""The hooks that this package adds to those of core."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpsmap_core.api import hookspec, subclasses

if TYPE_CHECKING:
    from lpsmap_decode import Decoder, FileFormat, MapSolver

__all__ = ["lpsmap_decoders", "lpsmap_formats", "lpsmap_solvers"]


def _suffixes(file_format: Any) -> Sequence[str]:
    """Return the suffixes of a format.

    Raises
    ------
    TypeError
        If no file can have them.
    """
    suffixes = file_format.suffixes
    if not isinstance(suffixes, (tuple, list)) or not all(map(_is_suffix, suffixes)):
        raise TypeError(
            f"{file_format.__name__}.suffixes is {suffixes!r}; expected a tuple of suffixes with a "
            "dot and in lower case, such as ('.uai',)"
        )
    return suffixes


def _is_suffix(value: Any) -> bool:
    return isinstance(value, str) and Path(f"x{value}").suffix == value == value.lower() != ""


@hookspec(subclasses("lpsmap_decode:FileFormat", _suffixes))
def lpsmap_formats() -> Sequence[type[FileFormat]]:  # type: ignore[empty-body]
    """Return file formats of factor graphs, registered by suffixes."""


@hookspec(subclasses("lpsmap_decode:Decoder"))
def lpsmap_decoders() -> Sequence[type[Decoder]]:  # type: ignore[empty-body]
    """Return decoders, which find best assignments, registered by name.

    Only called for best assignments, or for graphs given evidence. Only one decoder can be used. If
    there are several, all but one must be disabled.
    """


@hookspec(subclasses("lpsmap_decode:MapSolver"))
def lpsmap_solvers() -> Sequence[type[MapSolver]]:  # type: ignore[empty-body]
    """Return solvers of whole graphs, which find best assignments, registered by name.

    Only called if an exact search names a solver, or may choose one. `MapSolver.missing` says which
    package a solver lacks, so that it can be registered before that package is installed.
    """
