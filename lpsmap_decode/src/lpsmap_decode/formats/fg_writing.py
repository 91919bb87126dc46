"""Write factor graphs in the text format of the AD3 library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lpsmap_core import FactorGraph
from lpsmap_core.api import declared_variables, slot_values, slots_of
from lpsmap_decode.formats.compressed_text import write_text
from lpsmap_decode.formats.factor_types import factor_named
from lpsmap_decode.formats.file_format import FileFormatError

PLAIN = {
    "XOR": "Xor",
    "OR": "Or",
    "ATMOSTONE": "AtMostOne",
    "OROUT": "OrOut",
    "XOROUT": "XorOut",
    "ANDOUT": "AndOut",
    "IMPLY": "Imply",
}
"""Factors of the format without parameters, and the corresponding types of lpsmap."""

KINDS = {
    **{ours: kind for kind, ours in PLAIN.items()},
    "Nand": "OR",
    "Pair": "PAIR",
    "Budget": "BUDGET",
    "Knapsack": "KNAPSACK",
    "Dense": "DENSE",
    "Potts": "DENSE",
}
"""Types of lpsmap, and the corresponding factors of the format."""


def write_fg(graph: FactorGraph, path: Path) -> None:
    """Write a graph of logic factors."""
    lines = [line for factor in graph.factors for line in _lines(path, graph, factor)]
    scores = _finite(path, graph.flat_scores())
    head = [str(graph.n_variables), str(len(lines)), *map(repr, scores.tolist())]
    write_text(path, "\n".join([*head, *lines]) + "\n")


def _lines(path: Path, graph: FactorGraph, factor: Any) -> Iterator[str]:
    """Yield the lines of a declaration's factors."""
    name = type(factor).__name__
    kind = KINDS.get(name)
    if kind is not None and type(factor) is not factor_named(name):
        kind = None  # another type of the same name
    if kind is None or (kind == "BUDGET" and np.any(factor.force_budget)):
        raise FileFormatError(
            f"{path}: {factor!r} cannot be written for AD3, which has no such factor. Write .json "
            "instead."
        )
    view = factor.variables
    if name != "Nand":
        view = declared_variables(factor)
    literals = slot_values(factor, np.where(view.negated, -1 - view.index, view.index + 1))
    scores = _finite(path, graph.additional_scores(factor))
    for i, (begin, end) in enumerate(zip(factor.offsets[:-1], factor.offsets[1:], strict=True)):
        row = literals[begin:end].tolist()
        words = [kind, len(row), *row, *_numbers(factor, kind, i, scores[i])]
        yield " ".join(map(str, words))


def _numbers(factor: Any, kind: str, i: int, scores: Any) -> list[Any]:
    """Return the parameters of a factor."""
    if kind == "BUDGET":
        return [int(factor.budget[i])]
    if kind == "KNAPSACK":
        costs = slot_values(factor, factor.costs)[slots_of(factor, i)]
        return [*map(repr, costs.tolist()), repr(float(factor.budget[i]))]
    sizes = factor.n_states.tolist() if kind == "DENSE" else []
    if type(factor).__name__ == "Potts":
        scores = (scores * np.eye(sizes[0])).reshape(-1)
    return [*([len(sizes)] if sizes else []), *sizes, *map(repr, scores.tolist())]


def _finite(path: Path, scores: Any) -> Any:
    if not np.isfinite(scores).all():
        raise FileFormatError(
            f"{path}: a score is not finite; AD3 requires finite scores. Write .json instead."
        )
    return scores
