"""Tied scores: the faces that derivatives need, and proofs that end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import Budget, DepTree
from lpsmap_core import ConvergenceWarning, FactorGraph, Status
from random_graphs import Polytope

FloatArray = npt.NDArray[np.float64]


def test_the_centre_of_a_square_moves_in_both_directions() -> None:
    """Two structures on a diagonal represent the centre; the face has two dimensions."""
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.5, 0.5]))
    factor = graph.add(Polytope(u, judges.binary_vectors(2)))
    solution = graph.solve()
    np.testing.assert_allclose(u.value, [0.5, 0.5], atol=1e-15)
    for direction in np.eye(2):
        np.testing.assert_allclose(solution.vjp(direction)[0], direction, atol=1e-12)
    probabilities = [s.probability for s in solution.structures(factor)[0]]
    assert min(probabilities) > 0  # those added for the face have none, and are not shown
    assert sum(probabilities) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("n", [3, 4])
def test_trees_over_zero_scores_have_the_whole_jacobian(n: int) -> None:
    scores = 0.3 * np.eye(n)

    def marginals(x: FloatArray) -> FloatArray:
        graph = FactorGraph()
        u = graph.variable_from(x.reshape(n, n))
        graph.add(DepTree(u))
        graph.solve()
        values: FloatArray = u.value.reshape(-1)
        return values

    graph = FactorGraph()
    graph.add(DepTree(graph.variable_from(scores)))
    solution = graph.solve()
    jacobian = np.array([solution.vjp(e)[0] for e in np.eye(n * n)])
    differences = judges.central_difference(marginals, scores.reshape(-1), 1e-5)
    np.testing.assert_allclose(jacobian, differences, atol=1e-8)


def test_contradictions_beside_forbidden_arcs_are_proven() -> None:
    """The scores of the proof are as large as those that stand for forbidden variables."""
    no = -np.inf
    graph = FactorGraph()
    u = graph.variable_from(np.array([[no, 1, -1], [no, 1, -1], [-1, no, no]]))
    graph.add(DepTree(u))
    graph.add(Budget(u, 1, axis=0))
    with pytest.warns(ConvergenceWarning, match="contradict"):
        solution = graph.solve()
    assert solution.status.tolist() == [Status.INFEASIBLE]
