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
from lpsmap_factors_logic import Budget
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


def isotonic_projection(scores):
    """Return the projection of scores onto the permutahedron, by pooling adjacent violators."""
    n = len(scores)
    order = np.argsort(scores, kind="stable")
    pools = []
    for x in scores[order] - np.arange(n) / (n - 1):
        pools.append((x, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, k) = pools[-2:]
            pools[-2:] = [((a * m + b * k) / (m + k), m + k)]
    shift = np.repeat([mean for mean, _ in pools], [count for _, count in pools])
    found = np.empty(n)
    found[order] = scores[order] - shift
    return found


@pytest.mark.parametrize("scale", [0.0, 1e-6, 0.01, 0.3, 1.0, 10.0, 1e6])
@pytest.mark.parametrize("n", [2, 10, 100, 1000])
def test_projections_of_any_size_and_scale(rng, n, scale):
    scores = scale * rng.standard_normal((4, n))
    scores[2:] = np.round(4.0 * scores[2:]) / 4.0  # ties
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Permutation(u))
    assert set(graph.solve().status.tolist()) == {Status.SOLVED}
    expected = [isotonic_projection(one) for one in scores]
    # the judge's sums lose digits of large scores
    np.testing.assert_allclose(u.value, expected, rtol=0, atol=1e-13 * max(1.0, scale))


def test_a_common_offset_costs_no_digits(rng):
    scores = rng.integers(-8, 8, (3, 50)) / 64.0
    offset, graph = 2.0**30, FactorGraph()
    u, v = graph.variable_from(scores), graph.variable_from(scores + offset)
    graph.add(Permutation(u))
    graph.add(Permutation(v))
    assert graph.solve().ok
    np.testing.assert_allclose(v.value, u.value, rtol=0, atol=1e-14)


class Generic(Permutation):
    """Orderings by an oracle in Python, and so by the active set."""

    def solve_map(self, eta_u, eta_v):
        return tuple(np.argsort(eta_u, kind="stable").tolist())

    def vertex(self, y):
        positions = np.empty(len(y))
        positions[list(y)] = np.arange(len(y)) / max(len(y) - 1, 1)
        return positions, np.empty(0)


@pytest.mark.parametrize("scale", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("seed", range(8))
def test_items_of_several_factors(seed, scale):
    """The items of a factor have different degrees, and some are negated or forbidden."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 9))
    scores, negated = scale * rng.standard_normal((2, n)), rng.random((2, n)) < 0.3
    scores[1, -1], negated[1] = -np.inf, False
    d, answers = rng.standard_normal((2, n)), []
    for kind in (Permutation, Generic):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(kind(u ^ negated))
        graph.add(kind(u[:, :2].T))
        graph.add(Budget(u[0, n // 2 :] ^ negated[0, n // 2 :], (n + 2) // 3))
        solution = graph.solve(tol=1e-9)
        assert solution.ok
        answers.append((u.value, solution.vjp(d)[0]))
    assert Generic.local_solver() is None
    for found, expected in zip(*answers, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e-4, 0.01, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("n", [1, 2, 7, 60, 300])
def test_mixtures_of_orderings(rng, n, scale):
    graph = FactorGraph()
    u = graph.variable_from(scale * rng.standard_normal((3, n)))
    factor = graph.add(Permutation(u))
    solution = graph.solve()
    for one, marginals in zip(solution.structures(factor), u.value, strict=True):
        positions = np.round(one.variables * max(n - 1, 1)).astype(int)
        assert (np.sort(positions, axis=1) == np.arange(n)).all()
        assert len(positions) <= n
        assert (one.probabilities > 0.0).all()
        np.testing.assert_allclose(one.probabilities.sum(), 1.0, rtol=0, atol=1e-11)
        np.testing.assert_allclose(one.probabilities @ one.variables, marginals, rtol=0, atol=1e-11)


def test_wrong_arguments_are_named(graph):
    with pytest.raises(ValueError, match=r"Permutation: variables has shape \(\); expected at"):
        Permutation(graph.variable(3)[0])
    with pytest.raises(ValueError, match=r"Permutation: lengths\[1\] is 4; expected 0 to 3"):
        Permutation(graph.variable((2, 3)), lengths=[1, 4])
