"""Read and write factor graphs in files, in the installed format of the file's suffix."""

from __future__ import annotations

from pathlib import Path

from lpsmap_core import installed
from lpsmap_core.api import MAX_MEMORY, MemoryLimitError, kind_of, memory_limit
from lpsmap_decode.formats.error_text import error_text
from lpsmap_decode.formats.file_format import Evidence, FileFormat, FileFormatError, NamedGraph
from lpsmap_decode.formats.json_format import read_views


def read_graph(path: str | Path, max_memory: float = MAX_MEMORY) -> NamedGraph:
    """Read the graph in the file at `path`, in the installed format of its suffix.

    The name of a file that is compressed by gzip may have ``.gz`` after the suffix.

    Parameters
    ----------
    path
        The file.
    max_memory
        Maximum number of bytes that the text, the graph and its layout may take, by an estimate
        before they are allocated.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If no installed format has the file's suffix, if the file does not follow its format, or if
        it takes more than `max_memory`.
    """
    path = Path(path)
    file_format, distribution = _format_of(path)
    try:
        with memory_limit(max_memory):
            found: NamedGraph = file_format.read(path)
    except (OSError, FileFormatError):
        raise
    except MemoryLimitError as error:
        raise FileFormatError(f"{path}: {error}") from error
    except Exception as error:
        raise FileFormatError(
            f"{path}: {error_text(error)}; raised by the format of "
            f"{distribution}. Fix the file, or tell the plugin's author."
        ) from error
    if not isinstance(found, NamedGraph):
        raise FileFormatError(
            f"{path}: the format of {distribution} returned "
            f"{kind_of(found)}; expected a NamedGraph. Tell the plugin's author."
        )
    return found


def write_graph(named: NamedGraph, path: str | Path) -> None:
    """Write the graph `named` to the file at `path`, in the installed format of its suffix.

    Raises
    ------
    TypeError
        If `named` is not a `NamedGraph`.
    OSError
        If the file cannot be written.
    FileFormatError
        If no installed format has the file's suffix, or the format cannot represent the graph.
    """
    if not isinstance(named, NamedGraph):
        raise TypeError(
            f"named: got {kind_of(named)}; expected a NamedGraph. Pass NamedGraph(graph, "
            '{"u": u}), with a name for every block of variables.'
        )
    path = Path(path)
    _format_of(path)[0].write(named, path)


def read_evidence(
    path: str | Path,
    named: NamedGraph,
    graph_path: str | Path,
    max_memory: float = MAX_MEMORY,
) -> Evidence:
    """Read evidence: the values of some variables of a graph.

    Parameters
    ----------
    path
        The file. If its name ends in ``.json``, it holds a JSON object of views and numbers, such
        as ``{"u[0]": 1, "v": [0, null]}``. Otherwise it is in the graph's format.
    named
        The graph.
    graph_path
        The file from which the graph was read.
    max_memory
        As for `read_graph`.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If the file does not hold evidence for this graph, or takes more than `max_memory`.
    """
    path = Path(path)
    try:
        with memory_limit(max_memory):
            if _suffix(path) == ".json":
                return read_views(path, named)
            return _format_of(Path(graph_path))[0].read_evidence(path, named)
    except MemoryLimitError as error:
        raise FileFormatError(f"{path}: {error}") from error


def _suffix(path: Path) -> str:
    """Return the suffix of a file, without ``.gz``."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def states_costs(path: Path) -> bool:
    """Return whether files of the format of a suffix state costs, see `FileFormat`."""
    return _format_of(path)[0].states_costs


def _format_of(path: Path) -> tuple[FileFormat, str]:
    """Return the format for a file's suffix, and its distribution."""
    suffix, formats = _suffix(path), installed().of_kind("formats")
    if suffix not in formats:
        raise FileFormatError(
            f"{path}: no installed file format has the suffix {suffix!r}; expected one of "
            f"{', '.join(sorted(formats)) or 'none'}; rename the file, or install or enable a "
            "plugin that reads it."
        )
    return formats[suffix].value(), formats[suffix].plugin.distribution
