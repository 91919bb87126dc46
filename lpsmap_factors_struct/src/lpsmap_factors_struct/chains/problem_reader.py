"""Access to a chain's local problem within those of its bucket."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray, LocalProblem

FORBIDDEN = 1e200
"""Minus the score of forbidden nodes and edges."""


@leaf
def read_weights(f: int, n_nodes: np.uint64, problem: LocalProblem, weight: FloatArray) -> None:
    """Read the nodes' weights, which are the degrees of their variables."""
    lo = problem.offsets[f]
    for k in range(n_nodes):
        inverse = problem.inverse_delta[lo + np.int64(k)]
        weight[k] = 1.0 / (inverse * inverse)


@leaf
def read_node_scores(
    f: int, n: np.uint64, n_nodes: np.uint64, problem: LocalProblem, score: FloatArray
) -> None:
    """Read the scores of nodes, including those of first and last states if there are additionals.

    The scores of forced slots are zero.
    """
    lo, eta_v = np.uint64(problem.offsets[f]), problem.eta_v
    for k in range(n_nodes):
        a = problem.a[lo + k]
        score[k] = a * problem.inverse_delta[lo + k] if abs(a) < np.inf else 0.0
    if len(eta_v) == 0:
        return
    first = np.uint64(problem.additional_offsets[f])
    final = np.uint64(problem.additional_offsets[f + 1]) - n
    for k in range(n):
        score[k] += eta_v[first + k]
        score[n_nodes - n + k] += eta_v[final + k]


@leaf
def forbid_nodes(
    f: int, n: np.uint64, n_nodes: np.uint64, problem: LocalProblem, score: FloatArray
) -> None:
    """Mark forbidden states, and the other states of a layer with a forced state."""
    lo, forbidden = np.uint64(problem.offsets[f]), problem.forbidden
    first = np.uint64(problem.additional_offsets[f])
    final = np.uint64(problem.additional_offsets[f + 1]) - n
    for layer in range(np.uint64(0), n_nodes, n):
        forced = False
        for k in range(layer, layer + n):
            forced |= problem.a[lo + k] == np.inf
        for k in range(layer, layer + n):
            out = problem.a[lo + k] == -np.inf or (forced and problem.a[lo + k] < np.inf)
            out |= k < n and forbidden[first + k] != 0
            out |= k + n >= n_nodes and forbidden[final + (k - layer)] != 0
            score[k] = -FORBIDDEN if out else score[k]
