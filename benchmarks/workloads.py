"""The table of workloads: how to build each graph, and the times of the earlier library.

The times of the earlier library are milliseconds per instance, forward and backward, on a machine
that sorts a million normal numbers in `REFERENCE_SORT` milliseconds; it has no batches and uses one
thread. Its stopping rule divides the norm of the residuals by the square root of the number of
links; ours, at the same tol, bounds the largest residual, which is stricter.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

os.environ.setdefault("LPSMAP_COMPILE_AFTER", "0")  # measure compiled kernels

from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, Pair, Sequence, Xor

REFERENCE_SORT = 5.1
"""Milliseconds of the calibration on the machine of the reference times."""

Build = Callable[[int, np.random.Generator], Callable[[], FactorGraph]]


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    Attributes
    ----------
    name
        The name of the workload.
    build
        Given a batch size and a generator, samples scores and returns a function that builds the
        graph.
    reference
        Milliseconds per instance of the earlier library, forward plus backward, solved to 1e-6 (for
        one factor: the usual 50 active-set iterations, often not converged).
    batches
        The batch sizes to measure.
    """

    name: str
    build: Build
    reference: float
    batches: tuple[int, ...] = (16,)


def matching(m: int, n: int) -> Build:
    """Xor on every row, AtMostOne on every column."""

    def build(batch: int, rng: np.random.Generator) -> Callable[[], FactorGraph]:
        scores = rng.standard_normal((batch, m, n))

        def make() -> FactorGraph:
            graph = FactorGraph()
            u = graph.variable_from(scores)
            graph.add(Xor(u))
            graph.add(AtMostOne(u, axis=1))
            return graph

        return make

    return build


def pairs(k: int) -> Build:
    """A Pair for every two of k variables."""
    first, second = np.triu_indices(k, 1)

    def build(batch: int, rng: np.random.Generator) -> Callable[[], FactorGraph]:
        scores = 0.1 * rng.standard_normal((batch, k))
        weights = 0.1 * rng.standard_normal((batch, len(first)))

        def make() -> FactorGraph:
            graph = FactorGraph()
            u = graph.variable_from(scores)
            graph.add(Pair(u[:, first], u[:, second], weights))
            return graph

        return make

    return build


def tree(n: int, budget: int | None) -> Build:
    """Non-projective tree over n words, with a budget on every head's outgoing arcs or without."""
    off_diagonal = ~np.eye(n, dtype=bool)

    def build(batch: int, rng: np.random.Generator) -> Callable[[], FactorGraph]:
        scores = rng.standard_normal((batch, n, n))

        def make() -> FactorGraph:
            graph = FactorGraph()
            u = graph.variable_from(scores)
            graph.add(DepTree(u))
            if budget is not None:
                graph.add(Budget(u, budget, axis=1, mask=off_diagonal))
            return graph

        return make

    return build


def sequence(length: int, states: int, at_most_one: bool) -> Build:
    """Linear chain, with AtMostOne on every state or without."""

    def build(batch: int, rng: np.random.Generator) -> Callable[[], FactorGraph]:
        scores = rng.standard_normal((batch, length, states))
        transitions = rng.standard_normal((batch, length - 1, states, states))
        ends = rng.standard_normal((2, batch, states))

        def make() -> FactorGraph:
            graph = FactorGraph()
            u = graph.variable_from(scores)
            graph.add(Sequence(u, transitions, initial=ends[0], final=ends[1]))
            if at_most_one:
                graph.add(AtMostOne(u, axis=1))
            return graph

        return make

    return build


WORKLOADS = [
    Workload("matching 8x14", matching(8, 14), 3.739 + 0.296, (1, 128)),
    Workload("matching 30x40", matching(30, 40), 50.779 + 3.05),
    Workload("pairs k=159", pairs(159), 228.132 + 210.531, (4,)),
    Workload("tree n=20", tree(20, None), 0.94 + 0.086),
    Workload("tree n=50", tree(50, None), 5.099 + 0.125),
    Workload("tree n=100", tree(100, None), 25.073 + 0.4),
    Workload("tree+budget n=20", tree(20, 5), 10.281 + 0.199),
    Workload("tree+budget n=50", tree(50, 5), 52.834 + 0.874),
    Workload("tree+budget n=100", tree(100, 5), 498.796 + 2.995),
    Workload("sequence 50x20", sequence(50, 20, at_most_one=False), 2.921 + 1.073),
    Workload("sequence 14x20 + AtMostOne", sequence(14, 20, at_most_one=True), 15.693 + 1.206),
]
