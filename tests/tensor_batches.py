"""Batches of random graphs of all types that the engine on tensors covers, and their judges."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpsmap import (
    Bits,
    ConvergenceWarning,
    FactorGraph,
    Matching,
    Permutation,
    Sequence,
    SequenceDistance,
    Solution,
    Status,
    TopK,
    Variables,
)
from random_graphs import KINDS, random_graph

__all__ = ["check_batch", "mixed_batch", "solved"]

COVERED = [kind for kind in KINDS if kind not in ("DepTree", "Polytope")]
INSTANCES = 8
"""Random graphs that make one batch."""


class Moved(FactorGraph):
    """A graph whose scores are changed as they are declared."""

    def __init__(self, change: NDArray[np.float64]) -> None:
        super().__init__()
        self._change, self._at = change, 0

    def variable_from(self, scores: Any) -> Variables:
        given = np.asarray(scores)
        change = self._change[self._at : self._at + given.size].reshape(given.shape)
        self._at += given.size
        return super().variable_from(given + change)


def mixed_batch(seed: int, graph: FactorGraph) -> FactorGraph:
    """Declare a batch of graphs of all covered types; some have masks, some ties."""
    rng = np.random.default_rng(seed)
    scale = float(10.0 ** rng.integers(-2, 2))
    for _ in range(INSTANCES):
        drawn = random_graph(rng, int(rng.integers(1, 9)), scale, COVERED)
        eta = drawn.eta.copy()
        mask, where = rng.random(), rng.integers(len(eta))
        if mask < 0.2:
            eta[where] = -np.inf
        elif mask < 0.4:
            eta[where] = -1e9
        elif mask < 0.5:
            eta = np.round(eta)
        drawn.build(eta=eta, graph=graph)
    u = graph.variable_from(scale * rng.normal(size=(2, 3, 4)))
    graph.add(Matching(u))
    graph.add(TopK(u[:, 0], 2))
    graph.add(Bits(graph.variable_from(scale * rng.normal(size=3))))
    graph.add(Permutation(graph.variable_from(scale * rng.normal(size=(2, 4)))))
    states = graph.variable_from(scale * rng.normal(size=(2, 4, 3)))
    lengths = rng.integers(1, 5, size=2)
    graph.add(Sequence(states, scale * rng.normal(size=(2, 3, 3, 3)), lengths=lengths))
    distances = np.round(scale * rng.normal(size=3))  # flows are not unique
    graph.add(SequenceDistance(graph.variable_from(scale * rng.normal(size=(3, 4))), distances))
    return graph


def solved(graph: FactorGraph, engine: str) -> Solution:
    """Return the solution of a graph to 1e-11."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return graph.solve(engine=engine, tol=1e-11, max_iter=20_000)


def check_batch(seed: int) -> None:
    """Both engines find the same values, and what is infeasible; derivatives are derivatives."""
    own = solved(mixed_batch(seed, FactorGraph()), "compiled")
    graph = mixed_batch(seed, FactorGraph())
    found = solved(graph, "tensor")
    infeasible = own.status == Status.INFEASIBLE
    np.testing.assert_array_equal(found.status == Status.INFEASIBLE, infeasible)
    known = np.array([status.ok for status in own.status]) & ~infeasible
    assert all(status.ok for status in found.status[known])
    component = own.layout.component
    mine = known[component] & (component >= 0)
    np.testing.assert_allclose(found.values[mine], own.values[mine], rtol=0, atol=1e-9)
    assert set(found.contradictions) == set(np.flatnonzero(infeasible))
    size, eta = np.zeros(len(known) + 1), np.nan_to_num(graph.flat_scores(), neginf=0.0)
    np.maximum.at(size, component, np.abs(eta))  # the last one is of free variables
    # multipliers are as large as a mask of -1e9 that cannot hold, and so are rounding errors
    assert (found.gap[known] <= 1e-9 + 1e-15 * size[:-1][known]).all()
    check_derivatives(seed, found, mine)


def check_derivatives(seed: int, found: Solution, mine: NDArray[np.bool_]) -> None:
    """The Jacobian is an element of the generalised one, judged by definition.

    It is symmetric, and its products with a vector b have ``||J b||^2 <= <b, J b>``, as those of
    all elements for projections. Where the solution is smooth along b, they are its derivatives.
    """
    rng, h = np.random.default_rng(seed), 1e-6
    a, b = np.where(mine, rng.normal(size=(2, len(mine))), 0.0)
    (of_a, _), (of_b, _) = found.vjp(a), found.vjp(b)
    np.testing.assert_allclose(of_a @ b, a @ of_b, rtol=0, atol=1e-7)
    component, n = np.where(mine, found.layout.component, len(found.status)), len(found.status) + 1
    inner, squared = (np.bincount(component, x * of_b, n)[:-1] for x in (b, of_b))
    assert (squared <= inner + 1e-7).all()
    moved = (mixed_batch(seed, Moved(step * b)) for step in (h, -h))
    above, below = (solved(graph, "tensor").values for graph in moved)
    bend = np.abs(above - 2.0 * found.values + below)
    bends = np.bincount(component, np.where(mine, bend, 0.0) > 1e-9, n) > 0
    masked = np.bincount(component, np.abs(found.scores) > 1e6, n) > 0  # steps are rounded there
    smooth = mine & ~(bends | masked)[component]
    slope = (above - below) / (2.0 * h)
    np.testing.assert_allclose(of_b[smooth], slope[smooth], rtol=0, atol=1e-4)
