"""Checks of file formats."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from lpsmap_core import FactorGraph
from lpsmap_core.api import FloatArray, parameters_of, row_view, slot_values, slots_of
from lpsmap_core.testing import broken
from lpsmap_decode.formats.file_format import FileFormat, FileFormatError, NamedGraph

__all__ = ["check_format"]

DAMAGED = 20
"""Number of positions at which files are truncated or overwritten."""


def check_format(file_format: type[FileFormat], named: NamedGraph | bytes, folder: Path) -> None:
    """Check a format, with a graph that it writes and reads, and with damaged files.

    Parameters
    ----------
    file_format
        The format.
    named
        A graph that it can write; for a format that only reads, the content of a file.
    folder
        An empty folder.

    Raises
    ------
    ConformanceError
        If it reads other variables, scores or factors than it wrote, or raises an error other than
        `FileFormatError`. How factors are grouped in declarations does not matter.
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
    if isinstance(named, bytes):
        path.write_bytes(named)
        reader.read(path)
    else:
        reader.write(named, path)
        _compare(reader.read(path).graph, named.graph, where)
    content, rng = path.read_bytes(), np.random.default_rng(0)
    damaged = [b"", b"\x00\xff", b"no graph at all\n"]
    for at in rng.integers(len(content), size=DAMAGED):
        damaged += [content[:at], content[:at] + b"?" + content[at + 1 :]]
    for data in damaged:
        path.write_bytes(data)
        try:
            reader.read(path)
        except FileFormatError:
            continue
        except Exception as error:
            raise broken(
                "a file that violates the format raises a FileFormatError, because its message "
                "tells users what to fix",
                f"{type(error).__name__}: {error}, for a file that begins {data[:60]!r}",
                "a graph, or a FileFormatError with the position and the fault",
                where,
            ) from error


def _compare(again: FactorGraph, graph: FactorGraph, where: str) -> None:
    """Require that a graph that was read has the variables, scores and factors of another."""
    got, expected = again.flat_scores(), graph.flat_scores()
    factors, others = (Counter(map(str, _factors(each))) for each in (again, graph))
    if np.array_equal(got, expected) and factors == others:
        return
    raise broken(
        "a format reads the variables, scores and factors that it wrote, because graphs are stored "
        "in files",
        _described(got, factors, others),
        _described(expected, others, factors),
        where,
    )


def _described(scores: FloatArray, factors: Counter[str], others: Counter[str]) -> str:
    """Describe a graph, with a factor that the other graph does not have."""
    n, more = factors.total(), next(iter(factors - others), None)
    example = "" if more is None else f", such as {more}"
    many = "factor" if n == 1 else "factors"
    return f"{len(scores)} variables with scores {scores}, and {n} {many}{example}"


def _factors(graph: FactorGraph) -> list[dict[str, Any]]:
    """Return the content of every factor of a graph: type, slots, parameters and additionals."""
    contents = []
    for factor in graph.factors:
        index = slot_values(factor, factor.variables.index)
        negated = slot_values(factor, factor.variables.negated)
        scores = graph.additional_scores(factor)
        for i in range(factor.n_factors):
            view, slots = row_view(factor, i), slots_of(factor, i)
            content = {"variables": index[slots], "negated": negated[slots], "scores": scores[i]}
            content |= {name: getattr(view, name) for name in parameters_of(factor).names}
            plain = {name: np.asarray(value).tolist() for name, value in content.items()}
            contents.append({"type": type(factor).__name__, **plain})
    return contents
