"""Graphs of matchings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap import AtMostOne, FactorGraph, Xor

__all__ = ["matching"]

FloatArray = npt.NDArray[np.float64]


def matching(scores: FloatArray) -> tuple[FactorGraph, Any]:
    """Return a graph of matchings: one of every row, at most one of every column."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    return graph, u
