"""Matchings against enumeration, scipy's linear assignment and the judge."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from checks import (
    SLOW,
    Case,
    check_gradients,
    check_oracle,
    check_probabilities,
    check_sparsemap,
    run_oracle,
)
from lpsmap_core import Factor, FactorGraph, Status
from lpsmap_core.api import row_view
from lpsmap_factors_logic import AtMostOne, Xor
from lpsmap_factors_struct import Alignment, DepTree, Matching, SequenceDistance

SIZES = [
    pytest.param(m, n, full, id=f"{m}x{n}-{full}")
    for m, n in [(1, 1), (1, 4), (2, 3), (3, 3), (4, 2), (4, 4), (3, 6)]
    for full in ("rows", "shorter", "none")
    if m <= n or full != "rows"
]
LARGER = [pytest.param(5, 5, "rows", id="5x5-rows"), pytest.param(6, 6, "rows", id="6x6-rows")]
SMALL = [
    pytest.param(3, 3, "rows", id="3x3-rows"),
    pytest.param(3, 4, "rows", id="3x4-rows"),
    pytest.param(4, 2, "shorter", id="4x2-shorter"),
    pytest.param(3, 3, "none", id="3x3-none"),
    pytest.param(2, 3, "none", id="2x3-none"),
]


@functools.cache
def matchings(m, n, full):
    """By choosing a column, or none, for every row."""
    found = []
    for columns in itertools.product(range(n + 1), repeat=m):
        used = [j for j in columns if j < n]
        if len(set(used)) == len(used) and (full == "none" or len(used) == min(m, n)):
            found.append(np.eye(n + 1)[list(columns), :n])
    return np.array(found)


def case(m, n, full):
    return Case(lambda u, eta_v: Matching(u, full), (m, n), matchings(m, n, full))


def best_score(scores, full):
    """By scipy: with its own zero-valued spare column for every row that may stay alone."""
    if full == "none":
        scores = np.concatenate([scores, np.zeros((len(scores), len(scores)))], axis=1)
    return scores[linear_sum_assignment(scores, maximize=True)].sum()


@pytest.mark.parametrize(("m", "n", "full"), SIZES + LARGER)
def test_best_matching_is_the_best_of_all(draws, m, n, full):
    check_oracle(case(m, n, full), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "full"), SIZES + LARGER)
def test_best_matching_is_the_best_of_all_in_many_draws(m, n, full):
    check_oracle(case(m, n, full), SLOW, seed=1)


@pytest.mark.parametrize(("m", "n", "full"), SMALL)
def test_sparsemap_and_gradients(draws, m, n, full):
    check_sparsemap(case(m, n, full), draws // 40)
    check_gradients(case(m, n, full), draws // 10)
    check_probabilities(case(m, n, full), draws // 10)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "full"), SMALL)
def test_sparsemap_and_gradients_in_many_draws(m, n, full):
    check_sparsemap(case(m, n, full), SLOW, seed=1)
    check_gradients(case(m, n, full), SLOW, seed=1)
    check_probabilities(case(m, n, full), 2 * SLOW, seed=1)


@pytest.mark.parametrize(("m", "n"), [(12, 12), (25, 40), (40, 25)])
@pytest.mark.parametrize("full", ["shorter", "none"])
@pytest.mark.parametrize("integers", [False, True])
def test_larger_matchings_agree_with_scipy(rng, graph, m, n, full, integers):
    scores = rng.standard_normal((10, m, n))
    if integers:
        scores = rng.integers(-3, 4, size=scores.shape).astype(float)
    factor = Matching(graph.variable(scores.shape), full)
    found, _ = run_oracle(factor, scores.reshape(-1), np.empty(0))
    for one, score in zip(found, scores, strict=True):
        one = one.reshape(m, n)
        assert max(one.sum(axis=0).max(), one.sum(axis=1).max()) == 1
        assert full == "none" or one.sum() == min(m, n)
        assert (one * score).sum() == pytest.approx(best_score(score, full), abs=1e-11)


@pytest.mark.parametrize("full", ["shorter", "none"])
def test_ragged_batch_is_its_matchings(rng, full):
    sizes = np.array([[3, 5], [5, 2], [1, 1], [0, 3], [4, 0], [4, 5]])
    scores = rng.standard_normal((len(sizes), 5, 5))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    factor = graph.add(Matching(u, full, lengths=sizes))
    solution = graph.solve()
    assert solution.ok
    for b, (m, n) in enumerate(sizes):
        alone = FactorGraph()
        one = alone.variable_from(scores[b, :m, :n])
        alone.add(Matching(one, full))
        alone.solve()
        np.testing.assert_allclose(u.value[b, :m, :n], one.value, rtol=0, atol=1e-10)
        row = row_view(factor, b)
        pairs = row.solve_map(scores[b, :m, :n], np.empty(0))
        assert row.vertex(pairs)[0].shape == (m, n)
        assert len(pairs) == min(m, n) or full == "none"
    np.testing.assert_array_equal(u.value[3], np.clip(scores[3], 0, 1))


def test_one_length_cuts_both_axes(graph):
    factor = Matching(graph.variable((2, 4, 4)), lengths=[3, 1])
    assert row_view(factor, 0).vertex(((0, 1), (1, 0), (2, 2)))[0].shape == (3, 3)
    assert row_view(factor, 1).vertex(((0, 0),))[0].shape == (1, 1)


def test_matchings_are_decoded_to_pairs(graph):
    factor = row_view(Matching(graph.variable((3, 2)), "shorter"), 0)
    pairs = factor.solve_map(np.array([[0.0, 1.0], [3.0, 3.0], [4.0, 0.0]]), np.empty(0))
    assert set(pairs) == {(2, 0), (1, 1)}
    assert factor.decode(*factor.vertex(pairs)) == {"pairs": [[1, 1], [2, 0]]}


@pytest.mark.parametrize(("m", "n"), [(10, 10), (8, 14)])
def test_one_factor_agrees_with_many_small_ones(rng, m, n):
    scores, d = rng.standard_normal((2, 8, m, n))
    coarse, fine = FactorGraph(), FactorGraph()
    u, v = coarse.variable_from(scores), fine.variable_from(scores)
    coarse.add(Matching(u))
    fine.add(Xor(v))
    fine.add(Xor(v, axis=-2) if m == n else AtMostOne(v, axis=-2))
    one, other = coarse.solve(), fine.solve(tol=1e-10)
    assert one.ok
    np.testing.assert_allclose(u.value, v.value, rtol=0, atol=1e-8)
    np.testing.assert_allclose(one.vjp(d)[0], other.vjp(d)[0], rtol=0, atol=1e-8)


def test_marginals_of_a_square_are_doubly_stochastic(rng):
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((8, 10, 10)))
    graph.add(Matching(u))
    assert graph.solve().ok
    np.testing.assert_allclose(u.value.sum(axis=-1), 1.0, atol=1e-12)
    np.testing.assert_allclose(u.value.sum(axis=-2), 1.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*were not solved:UserWarning")
def test_a_row_of_forbidden_pairs(rng):
    scores = rng.standard_normal((3, 4))
    scores[1] = -np.inf
    for full in ("rows", "none"):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(Matching(u, full))
        solution = graph.solve()
        if full == "rows":
            assert solution.status[0] is Status.INFEASIBLE
        else:
            assert solution.ok
            assert not u.value[1].any()
            rest = FactorGraph()
            v = rest.variable_from(scores[[0, 2]])
            rest.add(Matching(v, full))
            rest.solve()
            np.testing.assert_allclose(u.value[[0, 2]], v.value, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((4,), {}, r"Matching: variables has shape \(4,\); expected at least 2 axes"),
        ((3, 4), {"full": "columns"}, "Matching: full is 'columns'; expected 'rows', 'shorter'"),
        ((2, 4, 3), {}, "Matching: factor 0 has 4 rows but 3 columns; expected at most as many"),
        (
            (2, 4, 4),
            {"lengths": [[2, 3], [3, 2]]},
            "Matching: factor 1 has 3 rows but 2 columns",
        ),
        ((2, 4, 4), {"lengths": [2, 5]}, r"Matching: lengths\[1\] is 5; expected 0 to 4"),
    ],
)
def test_wrong_arguments_are_named(graph, shape, arguments, message):
    with pytest.raises(ValueError, match=message):
        Matching(graph.variable(shape), **arguments)


@pytest.mark.parametrize("factor_type", [Matching, Alignment, SequenceDistance])
def test_lengths_with_two_readings_are_refused(factor_type: type[Factor]) -> None:
    """Rows and columns of every item of two heads were read as one length a head."""
    graph, more = FactorGraph(), [np.zeros(3)] if factor_type is SequenceDistance else []
    u, lengths = graph.variable((3, 2, 4, 5)), np.array([[4, 5], [2, 3], [1, 4]])
    with pytest.raises(ValueError, match=r"lengths has shape \(3, 2\), which is ambiguous"):
        factor_type(u, *more, lengths=lengths)
    each = np.broadcast_to(lengths[:, None], (3, 2, 2))
    np.testing.assert_array_equal(
        factor_type(u, *more, lengths=each).lengths, lengths.repeat(2, axis=0)
    )
    one_each = factor_type(u[:, 0], *more, lengths=[4, 2, 3])
    assert one_each.lengths[:, 0].tolist() == [4, 2, 3]
    trees = DepTree(u[..., :4], lengths=np.minimum(lengths, 4))
    assert trees.n_factors == 6
