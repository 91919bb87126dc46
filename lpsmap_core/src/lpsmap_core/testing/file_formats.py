"""Checks of file formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lpsmap_core.plugins.formats import FileFormat, FileFormatError, NamedGraph
from lpsmap_core.plugins.json_writer import is_same_graph
from lpsmap_core.testing.rules import broken

__all__ = ["check_format"]

DAMAGED = 20
"""Number of positions at which files are truncated or overwritten."""


def check_format(file_format: type[FileFormat], named: NamedGraph, folder: Path) -> None:
    """Check a format that reads and writes, with a graph and with damaged files.

    Parameters
    ----------
    file_format
        The format.
    named
        A graph that it can write.
    folder
        An empty folder.

    Raises
    ------
    ConformanceError
        If it reads another graph than it wrote, or raises an error other than `FileFormatError`.
    """
    reader, where = file_format(), file_format.__name__
    for suffix in reader.suffixes:
        if not suffix.startswith(".") or suffix != suffix.lower():
            raise broken(
                "suffixes start with a dot and are in lower case, because files are found by them",
                repr(suffix),
                "such as '.graph'",
                where,
            )
    path = folder / f"graph{reader.suffixes[0]}"
    reader.write(named, path)
    again = reader.read(path)
    if not is_same_graph(named.graph, again.graph):
        raise broken(
            "a format reads the graph that it wrote, because graphs are stored in files",
            f"{again.graph!r} with scores {again.graph.flat_scores()}",
            f"{named.graph!r} with scores {named.graph.flat_scores()}",
            where,
        )
    content, rng = path.read_bytes(), np.random.default_rng(0)
    damaged = [b"", b"\x00\xff", b"no graph at all\n"]
    for at in rng.integers(len(content), size=DAMAGED):
        damaged += [content[:at], content[:at] + b"?" + content[at + 1 :]]
    for data in damaged:
        path.write_bytes(data)
        _read_or_reject(reader, path)


def _read_or_reject(reader: FileFormat, path: Path) -> None:
    """Require that a file with any content is read or rejected by a `FileFormatError`."""
    try:
        reader.read(path)
    except FileFormatError:
        return
    except Exception as error:
        raise broken(
            "a file that violates the format raises a FileFormatError, because its message tells "
            "users what to fix",
            f"{type(error).__name__}: {error}, for a file that begins {path.read_bytes()[:60]!r}",
            "a graph, or a FileFormatError with the position and the fault",
            type(reader).__name__,
        ) from error
