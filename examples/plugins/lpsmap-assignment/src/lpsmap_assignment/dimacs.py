"""The assignment format of the first DIMACS challenge (1991)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import FactorGraph
from lpsmap_decode import FileFormat, FileFormatError, NamedGraph
from lpsmap_factors_logic import Xor

__all__ = ["Arcs", "AssignmentFormat", "read_arcs"]

IntArray = npt.NDArray[np.int64]


class Arcs(NamedTuple):
    """The arcs of an assignment problem.

    Attributes
    ----------
    source, sink
        For each arc, the numbers of its nodes, as in the file.
    cost
        For each arc, its cost.
    """

    source: IntArray
    sink: IntArray
    cost: IntArray


class AssignmentFormat(FileFormat):
    """Sources and sinks, to be paired by the cheapest arcs.

    ::

        c a comment
        p asn 4 3        nodes and arcs
        n 1              node 1 is a source; nodes without such a line are sinks
        n 2
        a 1 3 7          an arc from 1 to 3, of cost 7
        a 1 4 2
        a 2 4 1

    The variables are the block ``arcs``; their scores are the negated costs. Every source and every
    sink has an `Xor` over its arcs.
    """

    name: ClassVar[str] = "DIMACS assignment"
    suffixes: ClassVar[tuple[str, ...]] = (".asn",)

    def read(self, path: Path) -> NamedGraph:
        """Return the graph in a file; see `FileFormat.read`."""
        arcs = read_arcs(path)
        graph = FactorGraph()
        u = graph.variable_from(-arcs.cost.astype(np.float64))
        for ends in (arcs.source, arcs.sink):
            order = np.argsort(ends, kind="stable")
            degrees = np.unique(ends, return_counts=True)[1]
            within = np.arange(len(ends)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
            table = np.zeros((len(degrees), degrees.max()), dtype=np.int64)
            table[np.repeat(np.arange(len(degrees)), degrees), within] = order
            graph.add(Xor(u[table], lengths=degrees))
        return NamedGraph(graph, {"arcs": u})


def read_arcs(path: Path) -> Arcs:
    """Return the arcs in a file.

    Raises
    ------
    OSError
        If the file cannot be read.
    FileFormatError
        If its content violates the format.
    """
    n_nodes, n_arcs, sources, arcs = None, 0, set(), []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        kind, *words = line.split() or ["c"]
        try:
            match kind, words:
                case "c", _:
                    continue
                case "p", ["asn", nodes, count]:
                    n_nodes, n_arcs = int(nodes), int(count)
                case "n", [node]:
                    sources.add(int(node))
                case "a", [source, sink, cost]:
                    arcs.append((int(source), int(sink), int(cost)))
                case _:
                    raise ValueError
        except ValueError:
            raise FileFormatError(
                f"{path}, line {number}: got {line!r}; expected 'p asn NODES ARCS', 'n NODE' or "
                "'a SOURCE SINK COST'."
            ) from None
    if len(arcs) != n_arcs or not arcs:
        expected = f"{n_arcs}, as in the problem line" if n_arcs else "1 or more"
        raise FileFormatError(f"{path}: got {len(arcs)} arcs; expected {expected}.")
    table = Arcs(*np.array(arcs, dtype=np.int64).T)
    joined = {int(node) for node in np.concatenate([table.source, table.sink])}
    if joined != set(range(1, int(n_nodes or 0) + 1)) or set(table.source.tolist()) != sources:
        raise FileFormatError(
            f"{path}: the arcs do not join the sources {sorted(sources)} to all other nodes up to "
            f"{n_nodes}; expected an arc at every node, from a source to a sink."
        )
    return table
