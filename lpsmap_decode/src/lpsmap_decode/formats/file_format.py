"""The interface of file formats of factor graphs."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy.typing as npt

from lpsmap_core import FactorGraph, Variables

Evidence = list[tuple[Variables, npt.ArrayLike]]
"""Views of variables, and their values. See `lpsmap_core.FactorGraph.condition`."""


class FileFormatError(ValueError):
    """A file violates its format. The message says where, and how to fix it."""


class NamedGraph(NamedTuple):
    """A factor graph with names for its blocks of variables.

    Attributes
    ----------
    graph
        The unsolved graph.
    variables
        Its blocks of variables, by their names in the file.
    """

    graph: FactorGraph
    variables: dict[str, Variables]


class FileFormat(abc.ABC):
    """A file format of factor graphs. Plugins provide formats by the hook ``lpsmap_formats``."""

    name: ClassVar[str]
    """Name of the format, for messages."""

    suffixes: ClassVar[tuple[str, ...]]
    """Suffixes of its files in lower case, such as ``(".uai",)``."""

    states_costs: ClassVar[bool] = False
    """Whether its files state costs, which are minus the scores. Commands then print costs."""

    @abc.abstractmethod
    def read(self, path: Path) -> NamedGraph:
        """Read the graph in the file at `path`.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileFormatError
            If the file violates the format.
        """

    def write(self, named: NamedGraph, path: Path) -> None:
        """Write the graph `named` to the file at `path`.

        Raises
        ------
        OSError
            If the file cannot be written.
        FileFormatError
            If the format cannot represent the graph. Nothing is written then.
        """
        raise FileFormatError(
            f"{path}: graphs cannot be written as {self.name}. Choose another suffix."
        )

    def read_evidence(self, path: Path, named: NamedGraph) -> Evidence:
        """Read values of variables of the graph `named` from the file at `path`.

        Raises
        ------
        OSError
            If the file cannot be read.
        FileFormatError
            If the file violates the format.
        """
        raise FileFormatError(
            f"{path}: {self.name} has no format for evidence; expected a JSON object of views and "
            'numbers, such as {"u[0]": 1}, in a file with the suffix .json.'
        )
