"""Read and write factor graphs in files, by the installed formats of their suffixes."""

from __future__ import annotations

from pathlib import Path

from lpsmap_core.model.inputs import kind_of
from lpsmap_core.plugins.contributions import Registration
from lpsmap_core.plugins.formats import (
    Evidence,
    FileFormat,
    FileFormatError,
    NamedGraph,
    error_text,
)
from lpsmap_core.plugins.json_format import read_views
from lpsmap_core.plugins.packs import SUFFIXES, missing_pack_advice
from lpsmap_core.plugins.registry import installed

__all__ = ["read_evidence", "read_graph", "write_graph"]


def read_graph(path: str | Path) -> NamedGraph:
    """Return the graph in the file at `path`, by the installed format of its suffix.

    A file that is compressed by gzip may end in ``.gz`` behind its suffix.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If no installed format has the file's suffix, or the file does not follow its format.
    """
    path = Path(path)
    registration = _registration(path)
    try:
        found: NamedGraph = registration.value().read(path)
    except (OSError, FileFormatError):
        raise
    except Exception as error:
        raise FileFormatError(
            f"{path}: {error_text(error)}; raised by the format of "
            f"{registration.plugin.distribution}. Mend the file, or tell the plugin's author."
        ) from error
    if not isinstance(found, NamedGraph):
        raise FileFormatError(
            f"{path}: the format of {registration.plugin.distribution} returned "
            f"{kind_of(found)}; expected a NamedGraph. Tell the plugin's author."
        )
    return found


def write_graph(named: NamedGraph, path: str | Path) -> None:
    """Write the graph `named` into the file at `path`, by the installed format of its suffix.

    Raises
    ------
    OSError
        If the file cannot be written.
    FileFormatError
        If no installed format has the file's suffix, or it cannot say what is in the graph.
    """
    path = Path(path)
    chosen: FileFormat = _registration(path).value()
    chosen.write(named, path)


def read_evidence(path: str | Path, named: NamedGraph, graph_path: str | Path) -> Evidence:
    """Return what a file says that variables of a graph are known to be.

    Parameters
    ----------
    path
        The file: a JSON object of views and numbers, such as ``{"u[0]": 1, "v": [0, null]}``, if
        its name ends in ``.json``; otherwise as the format of the graph has it.
    named
        The graph.
    graph_path
        The file that it was read from.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If it does not hold evidence for this graph.
    """
    path = Path(path)
    if _suffix(path) == ".json":
        return read_views(path, named)
    chosen: FileFormat = _registration(Path(graph_path)).value()
    return chosen.read_evidence(path, named)


def _suffix(path: Path) -> str:
    """Return the end of a file's name, without that of compressed files."""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


def _registration(path: Path) -> Registration:
    """Return the installed format of a file's suffix."""
    suffix, formats = _suffix(path), installed().formats
    if suffix not in formats:
        advice = "rename the file, or install a plugin that reads it"
        if suffix in SUFFIXES:
            advice = missing_pack_advice(SUFFIXES[suffix])
        raise FileFormatError(
            f"{path}: no installed file format has the suffix {suffix!r}; expected one of "
            f"{', '.join(sorted(formats))}; {advice}."
        )
    return formats[suffix]
