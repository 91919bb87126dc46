"""Solvers of a chain that begin with a forest, however small it is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap import FactorGraph, Sequence
from lpsmap_core.api import Bucket, build_layout
from lpsmap_factors_struct.chains.chain_forests import ChainForests
from lpsmap_factors_struct.chains.chain_records import FOREST

FloatArray = npt.NDArray[np.float64]


def make_bucket(length: int, n_states: int) -> Bucket:
    """One chain."""
    graph = FactorGraph()
    steps = np.zeros((length - 1, n_states, n_states))
    factor = Sequence(graph.variable((length, n_states)), steps)
    return build_layout(length * n_states, [factor]).buckets[0]


def forests_of(
    bucket: Bucket, delta: FloatArray, forbidden: npt.ArrayLike | None = None
) -> ChainForests:
    """A solver that begins with a forest."""
    solver = ChainForests(
        bucket, delta, None if forbidden is None else np.asarray(forbidden, np.int8)
    )
    solver.methods[:] = FOREST
    return solver
