"""The structured pack on core and lpsmap_dynamic alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lpsmap_core import FactorGraph, installed
from lpsmap_factors_struct import DepTree, Matching, ModifierBudget, Sequence


def test_a_matching_is_the_best_permutation() -> None:
    scores = np.random.default_rng(0).standard_normal((4, 4))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Matching(u))
    graph.solve_map()
    best = max(sum(scores[i, p[i]] for i in range(4)) for p in itertools.permutations(range(4)))
    assert (scores * u.value).sum() == pytest.approx(best)


def test_trees_with_few_modifiers() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(1).standard_normal((3, 3)))
    tree = graph.add(DepTree(u))
    graph.add(ModifierBudget(u, 1))
    solution = graph.solve(tol=1e-9)
    assert solution.ok
    (found,) = solution.structures(tree)
    assert found.probabilities.sum() == pytest.approx(1.0)
    mean = np.tensordot(found.probabilities, found.variables, 1)
    np.testing.assert_allclose(mean, u.value, atol=1e-8)


def test_sums_over_sequences_come_from_lpsmap_dynamic() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((3, 2)))
    gibbs = graph.gibbs(graph.add(Sequence(u, np.zeros((2, 2)))))
    assert gibbs.count() == 8
    np.testing.assert_allclose(gibbs.marginals, 0.5)


def test_types_are_offered() -> None:
    assert installed().factors["DepTree"].value is DepTree
