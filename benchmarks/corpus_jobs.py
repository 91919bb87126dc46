"""The jobs of `corpus.py`, in a module that workers can import."""

from __future__ import annotations

import functools
import os
import time
from typing import Any

import numpy as np

from lpsmap import Budget, DepTree, FactorGraph
from lpsmap_search import TaggedSentence
from parsing.bilinear import Bilinear

__all__ = ["processor_time", "tree"]

BUDGET = 5


@functools.lru_cache(maxsize=1)
def _model(scale: float) -> Bilinear:
    """Return the model, created once per process rather than sent with every batch."""
    return Bilinear(0, scale)


def tree(sentence: TaggedSentence, scale: float) -> FactorGraph:
    """Return the graph of a sentence's trees."""
    graph, n = FactorGraph(), len(sentence)
    u = graph.variable_from(_model(scale).scores(sentence.words))
    graph.add(DepTree(u, single_root=True))
    if n > 1:
        graph.add(Budget(u, BUDGET, axis=0, mask=~np.eye(n, dtype=bool)))
    return graph


def processor_time(graph: FactorGraph, found: Any) -> tuple[int, float]:
    """Return the id of this process, and its processor time."""
    return os.getpid(), time.process_time()
