"""Read the factor graph in a file, by the installed format of its suffix."""

from __future__ import annotations

from pathlib import Path

from lpsmap_core.plugins.formats import FileFormatError, NamedGraph, in_words
from lpsmap_core.plugins.registry import installed

__all__ = ["read_graph"]


def read_graph(path: str | Path) -> NamedGraph:
    """Return the graph in the file at `path`, by the installed format of its suffix.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If no installed format has the file's suffix, or the file does not follow its format.
    """
    path, formats = Path(path), installed().formats
    suffix = path.suffix.lower()
    if suffix not in formats:
        raise FileFormatError(
            f"{path}: no installed file format has the suffix {suffix!r}; expected one of "
            f"{', '.join(sorted(formats))}. Rename the file, or install a plugin that reads it."
        )
    registration = formats[suffix]
    try:
        found: NamedGraph = registration.value().read(path)
    except (OSError, FileFormatError):
        raise
    except Exception as error:
        raise FileFormatError(
            f"{path}: {in_words(error)}; raised by the format of "
            f"{registration.plugin.distribution}. Mend the file, or tell the plugin's author."
        ) from error
    if not isinstance(found, NamedGraph):
        raise FileFormatError(
            f"{path}: the format of {registration.plugin.distribution} returned a "
            f"{type(found).__name__}; expected a NamedGraph. Tell the plugin's author."
        )
    return found
