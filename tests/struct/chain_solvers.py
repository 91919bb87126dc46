"""Solvers of a chain that begin with its flows, or with a forest, however small it is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap import FactorGraph, Sequence
from lpsmap_core.api import Bucket, build_layout
from lpsmap_factors_struct.flows.chain_flows import ChainFlows
from lpsmap_factors_struct.flows.flow_records import FLOW, FOREST

FloatArray = npt.NDArray[np.float64]


def make_bucket(length: int, n_states: int) -> Bucket:
    """One chain."""
    graph = FactorGraph()
    steps = np.zeros((length - 1, n_states, n_states))
    factor = Sequence(graph.variable((length, n_states)), steps)
    return build_layout(length * n_states, [factor]).buckets[0]


def flows_of(bucket: Bucket, delta: FloatArray, barred: npt.ArrayLike | None = None) -> ChainFlows:
    """A solver that has given its active sets up."""
    solver = forests_of(bucket, delta, barred)
    solver._begin_flows(np.arange(bucket.n_factors))
    solver.methods[:] = FLOW
    return solver


def forests_of(
    bucket: Bucket, delta: FloatArray, barred: npt.ArrayLike | None = None
) -> ChainFlows:
    """A solver that begins with a forest."""
    solver = ChainFlows(bucket, delta, None if barred is None else np.asarray(barred, np.int8))
    solver.methods[:] = FOREST
    return solver
