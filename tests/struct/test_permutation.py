"""Orderings against enumeration, NumPy's sort and the judge."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from checks import (
    SLOW,
    Case,
    check_gradients,
    check_oracle,
    check_probabilities,
    check_sparsemap,
    run_oracle,
)
from lpsmap_core import FactorGraph, Status
from lpsmap_core.api import row_view
from lpsmap_factors_struct import Permutation


def case(n):
    positions = np.arange(n) / max(n - 1, 1)
    orders = np.array(list(itertools.permutations(positions)))
    return Case(lambda u, eta_v: Permutation(u), (n,), orders)


@pytest.mark.parametrize("n", range(1, 7))
def test_best_ordering_is_the_best_of_all(draws, n):
    check_oracle(case(n), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize("n", range(1, 7))
def test_best_ordering_is_the_best_of_all_in_many_draws(n):
    check_oracle(case(n), SLOW, seed=1)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_sparsemap_and_gradients(draws, n):
    check_sparsemap(case(n), draws // 40)
    check_gradients(case(n), draws // 10)
    check_probabilities(case(n), draws // 10, scale=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_sparsemap_and_gradients_in_many_draws(n):
    check_sparsemap(case(n), SLOW, seed=1)
    check_gradients(case(n), SLOW, seed=1)
    check_probabilities(case(n), 2 * SLOW, seed=1, scale=0.5)


@pytest.mark.parametrize("n", [17, 64, 100])
def test_larger_orderings_agree_with_a_stable_sort(rng, graph, n):
    scores = rng.integers(-n, n, size=(10, n)).astype(float)
    factor = Permutation(graph.variable(scores.shape))
    found, _ = run_oracle(factor, scores.reshape(-1), np.empty(0))
    for b, (one, score) in enumerate(zip(found, scores, strict=True)):
        order = np.argsort(score, kind="stable")
        assert (one[order] == np.arange(n) / (n - 1)).all()
        assert row_view(factor, b).solve_map(score, np.empty(0)) == tuple(order.tolist())
        assert factor.decode(one, np.empty(0)) == {"order": order.tolist()}


def test_ragged_batch_is_its_orderings(rng):
    lengths = [4, 0, 1, 2, 6]
    scores = 3 * rng.standard_normal((len(lengths), 6))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Permutation(u, lengths=lengths))
    assert graph.solve().ok
    for b, n in enumerate(lengths):
        alone = FactorGraph()
        one = alone.variable_from(scores[b, :n])
        alone.add(Permutation(one))
        alone.solve()
        np.testing.assert_allclose(u.value[b, :n], one.value, rtol=0, atol=1e-10)
        assert u.value[b, :n].sum() == pytest.approx(n / 2 if n > 1 else 0.0)


def test_far_scores_are_sorted_and_equal_ones_meet(rng):
    graph = FactorGraph()
    u, v = (
        graph.variable_from(np.array([5.0, -5.0, 5.0, 0.0])),
        graph.variable_from([3.0, 1.0, 2.0]),
    )
    graph.add(Permutation(u))
    graph.add(Permutation(~v))
    assert graph.solve().ok
    np.testing.assert_allclose(u.value, [5 / 6, 0, 5 / 6, 1 / 3], atol=1e-12)
    np.testing.assert_allclose((~v).value, [0, 1, 0.5], atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*were not solved:UserWarning")
def test_one_item_can_be_forbidden_to_leave_the_start(rng):
    graph = FactorGraph()
    u = graph.variable_from([[3.0, -np.inf, 1.0], [-np.inf, -np.inf, 1.0]])
    graph.add(Permutation(u))
    solution = graph.solve()
    np.testing.assert_allclose(u.value[0], [1.0, 0.0, 0.5], atol=1e-12)
    assert solution.status.tolist() == [Status.SOLVED, Status.INFEASIBLE]


def test_wrong_arguments_are_named(graph):
    with pytest.raises(ValueError, match=r"Permutation: variables has shape \(\); expected at"):
        Permutation(graph.variable(3)[0])
    with pytest.raises(ValueError, match=r"Permutation: lengths\[1\] is 4; expected 0 to 3"):
        Permutation(graph.variable((2, 3)), lengths=[1, 4])
