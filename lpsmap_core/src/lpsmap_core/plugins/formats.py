"""Factor graphs in files: what a file format is."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy.typing as npt

from lpsmap_core.graph import FactorGraph
from lpsmap_core.model.variables import Variables

__all__ = ["Evidence", "FileFormat", "FileFormatError", "NamedGraph"]

Evidence = list[tuple[Variables, npt.ArrayLike]]
"""Variables, and what they are known to be. See `lpsmap_core.FactorGraph.condition`."""


class FileFormatError(ValueError):
    """A file is not what its format asks for; the message says where and what to mend."""


class NamedGraph(NamedTuple):
    """A factor graph with names for its variables, as a file describes it.

    Attributes
    ----------
    graph
        The graph, not solved yet.
    variables
        Its blocks of variables by their names in the file.
    """

    graph: FactorGraph
    variables: dict[str, Variables]


class FileFormat(abc.ABC):
    """A way to write a factor graph in a file; plugins offer theirs by ``lpsmap_formats``."""

    name: ClassVar[str]
    """What people call it."""

    suffixes: ClassVar[tuple[str, ...]]
    """Ends of the names of its files, such as ``(".uai",)``, in small letters."""

    @abc.abstractmethod
    def read(self, path: Path) -> NamedGraph:
        """Return the graph in the file at `path`.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileFormatError
            If it does not hold what the format asks for.
        """

    def write(self, named: NamedGraph, path: Path) -> None:
        """Write the graph `named` into the file at `path`.

        Raises
        ------
        OSError
            If the file cannot be written.
        FileFormatError
            If the format cannot say what is in the graph; nothing is written then.
        """
        raise FileFormatError(
            f"{path}: no graph can be written as {self.name}. Choose another "
            "format, by another suffix."
        )

    def read_evidence(self, path: Path, named: NamedGraph) -> Evidence:
        """Return what the file at `path` says that variables of the graph `named` are known to be.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileFormatError
            If it does not hold what the format asks for.
        """
        raise FileFormatError(
            f"{path}: graphs in {self.name} have no evidence of their own; expected a JSON object "
            'of views and numbers, such as {"u[0]": 1}, in a file that ends in .json.'
        )


def error_text(error: Exception) -> str:
    """Return what an error says, cut if it is long: it may quote all that a file holds.

    Kinds of errors that bad input does not bring about are named, too.
    """
    words = str(error)
    if not words or not isinstance(error, (ValueError, TypeError, IndexError, RecursionError)):
        words = f"{type(error).__name__}: {words}"
    return words if len(words) <= 600 else f"{words[:300]} ... {words[-200:]}"
