"""Gibbs distributions of trees of factors, against sums over all assignments."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from judges import central_difference
from lpsmap import (
    AtMostOne,
    FactorGraph,
    Nand,
    Or,
    Pair,
    Sequence,
    Xor,
)
from lpsmap_dynamic import GraphGibbs
from random_forests import enumerate_graph, random_forest

FloatArray = Any


def drawn(
    seed: int, scale: float = 1.0, n_factors: int = 5, masks: float = 0.0, moved: FloatArray = 0.0
) -> FactorGraph:
    """Return a random forest with random scores, which are moved; every other seed has ties."""
    rng, graph = np.random.default_rng(seed), FactorGraph()

    def draw(shape: Any) -> FloatArray:
        found = rng.standard_normal(shape)
        return scale * (np.rint(found) if seed % 2 else found)

    scores = draw(1 + 4 * n_factors)
    scores[rng.random(len(scores)) < 0.1] += masks
    random_forest(rng, graph, scores + moved, draw, n_factors)
    return graph


def check(graph: FactorGraph, tolerance: float = 1e-11) -> GraphGibbs:
    """Hold the sums of a graph against enumeration."""
    gibbs, truth = graph.gibbs(), enumerate_graph(graph)
    assert gibbs.log_partition.sum() == pytest.approx(truth.log_partition, abs=tolerance)
    if truth.log_partition > -np.inf:
        assert gibbs.entropy.sum() == pytest.approx(truth.entropy, abs=tolerance)
        np.testing.assert_allclose(gibbs._beliefs.m, truth.m, rtol=0, atol=tolerance)
        for factor, n in zip(graph.factors, truth.n, strict=True):
            found = gibbs.additionals_of(factor).reshape(n.shape)
            np.testing.assert_allclose(found, n, rtol=0, atol=tolerance)
    return gibbs


@pytest.mark.parametrize("seed", range(60))
def test_sums_are_those_over_all_assignments(seed: int) -> None:
    check(drawn(seed))


@pytest.mark.parametrize("masks", [-np.inf, -1e9])
@pytest.mark.parametrize("seed", range(12))
def test_masks(seed: int, masks: float) -> None:
    check(drawn(seed, masks=masks), 1e-11 if masks == -np.inf else 1e-5)


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 30.0, 1e3, 1e8])
@pytest.mark.parametrize("seed", range(6))
def test_scores_of_any_size(seed: int, scale: float) -> None:
    check(drawn(seed, scale), 1e-13 * max(scale, 100.0))


@pytest.mark.parametrize("seed", range(10))
def test_tangents(seed: int) -> None:
    """They agree with central differences, as does the gradient with the marginals."""
    rng, graph = np.random.default_rng(seed), drawn(2 * seed)
    d_u = rng.standard_normal(graph.n_variables)

    def numbers(t: FloatArray) -> FloatArray:
        moved = drawn(2 * seed, moved=t * d_u)
        gibbs = moved.gibbs()
        extra = [gibbs.additionals_of(factor).reshape(-1) for factor in moved.factors]
        return np.concatenate([gibbs.log_partition, gibbs._beliefs.m, *extra])

    if not np.isfinite(graph.gibbs().log_partition).all():
        return
    log_z, m, n = graph.gibbs().jvp(d_u)
    slope = central_difference(numbers, np.zeros(()), 1e-4)
    found = np.concatenate([log_z, m, *(x.reshape(-1) for x in n)])
    np.testing.assert_allclose(found, slope, rtol=0, atol=1e-7)


def test_long_chains_of_pairs() -> None:
    """They are sequences of two states."""
    rng = np.random.default_rng(0)
    scores, w = rng.standard_normal((3, 200)), rng.standard_normal((3, 199))
    graph, other = FactorGraph(), FactorGraph()
    u = graph.variable_from(scores)
    pairs = graph.add(Pair(u[:, :-1], u[:, 1:], w))
    v = other.variable_from(np.stack([scores, np.zeros_like(scores)], axis=-1))
    w = np.stack([w, 0.0 * w, 0.0 * w, 0.0 * w], axis=-1).reshape(3, 199, 2, 2)
    sequences = other.add(Sequence(v, transitions=w))
    gibbs, expected = graph.gibbs(), other.gibbs(sequences)
    np.testing.assert_allclose(gibbs.log_partition, expected.log_partition, rtol=1e-13)
    np.testing.assert_allclose(gibbs.entropy, expected.entropy, rtol=1e-12)
    np.testing.assert_allclose(gibbs.value_of(u), expected.marginals[..., 0], atol=1e-13)
    both = expected.additionals.reshape(3, -1)[:, 2:-2].reshape(3, 199, 2, 2)[..., 0, 0]
    np.testing.assert_allclose(gibbs.additionals_of(pairs), both, atol=1e-13)


def test_messages_past_saturated_marginals() -> None:
    """A variable has a log-odds of 60 without one of its factors, and of 0 with it."""
    graph = FactorGraph()
    u = graph.variable_from([60.0, 0.0, 0.5])
    graph.add(Pair(u[0], u[1], -60.0))
    graph.add(Xor(u[[0, 2]]))
    a, b, c = (np.exp(x) for x in (60.0, 0.0, 0.5))
    weights = {(1, 0, 0): a, (1, 1, 0): a * b / a, (0, 0, 1): c, (0, 1, 1): b * c}
    z = sum(weights.values())
    gibbs = graph.gibbs()
    expected = [sum(w for x, w in weights.items() if x[i]) / z for i in range(3)]
    assert gibbs.log_partition == pytest.approx(np.log(z), rel=1e-15)
    np.testing.assert_allclose(gibbs.value_of(u), expected, rtol=0, atol=1e-15)


def test_messages_that_force_a_variable() -> None:
    """Its own score counts, whoever forces it."""
    for negated in (False, True):
        graph = FactorGraph()
        u = graph.variable_from([1.5, -0.25, 2.0, 0.75])
        x = ~u[0] if negated else u[0]
        graph.add(Xor(x.reshape(1)))
        graph.add(AtMostOne([u[0], u[1], ~u[2]]))
        graph.add(Or([~u[0], u[3]]))
        check(graph)


def test_contradictions_have_no_assignments() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((2, 2)))
    graph.add(Xor(u[:, :1]))
    graph.add(Xor(~u[0, :1]))
    graph.add(Nand([u[1, 0], u[1, 1]]))
    gibbs = graph.gibbs()
    np.testing.assert_array_equal(gibbs.log_partition, [-np.inf, 0.0])
    np.testing.assert_array_equal(gibbs.entropy, 0.0)
    np.testing.assert_array_equal(gibbs.value_of(u), [[0.0, 0.0], [1.0, 0.0]])
    for part in (*gibbs.jvp(np.ones(4))[:2],):
        assert np.isfinite(part).all()


def test_scores_that_are_no_numbers_stay_in_their_component() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[np.nan, 0.0], [np.inf, 0.0], [0.0, 0.0]])
    padding = graph.variable_from([np.nan])
    graph.add(Xor(u))
    gibbs = graph.gibbs()
    np.testing.assert_allclose(gibbs.log_partition, [np.nan, np.nan, np.log(2.0)])
    np.testing.assert_array_equal(np.isnan(gibbs.value_of(u)[:, 0]), [True, True, False])
    np.testing.assert_allclose(gibbs.value_of(u)[2], 0.5)
    assert gibbs.value_of(padding) == [0.0]
    np.testing.assert_array_equal(gibbs.component_of(u), [[0, 0], [1, 1], [2, 2]])
    assert gibbs.component_of(padding) == [-1]


@pytest.mark.filterwarnings("ignore::lpsmap.ConvergenceWarning")
def test_components_are_those_of_a_solution() -> None:
    for seed in range(10):
        graph = drawn(seed, n_factors=6)
        solution, gibbs = graph.solve_map(), graph.gibbs()
        for factor in graph.factors:
            expected = solution.component_of(factor.variables)
            np.testing.assert_array_equal(gibbs.component_of(factor.variables), expected)


def test_empty_batches_and_rows() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((0, 3)))
    graph.add(Xor(u))
    gibbs = graph.gibbs()
    assert gibbs.log_partition.shape == gibbs.entropy.shape == (0,)
    assert gibbs.value_of(u).shape == (0, 3)
    graph = FactorGraph()
    graph.add(AtMostOne(graph.variable_from(np.zeros((2, 3))), lengths=[0, 2]))
    np.testing.assert_allclose(graph.gibbs().log_partition, [np.log(3.0)])


def test_bad_input_is_refused() -> None:
    graph, other = FactorGraph(), FactorGraph()
    with pytest.raises(ValueError, match="the graph has no factors"):
        graph.gibbs()
    u = graph.variable(3)
    graph.add(Xor(u))
    gibbs = graph.gibbs()
    with pytest.raises(ValueError, match="belong to another graph"):
        gibbs.value_of(other.variable(3))
    with pytest.raises(TypeError, match="expected Variables"):
        gibbs.value_of([0, 1])
    with pytest.raises(ValueError, match="is not in this graph"):
        gibbs.additionals_of(other.add(Xor(other.variable(2))))
    graph.add(Or([u[0], ~u[0]]))
    with pytest.raises(ValueError, match="contains a variable twice"):
        graph.gibbs()
    large = FactorGraph()
    v = large.variable_from([1.7e308, 1.7e308, -1.7e308])
    large.add(Pair(v[0], v[1], 0.0))
    large.add(Or(v[1:]))
    with pytest.raises(ValueError, match=r"scores of up to 1\.7e\+308, whose sums overflow"):
        _ = large.gibbs().log_partition


@pytest.mark.parametrize("used", [False, True])
def test_distributions_are_pickled_with_their_graph(used: bool) -> None:
    graph = drawn(0)
    u, gibbs = graph.blocks[0], [graph.gibbs(), graph.gibbs(graph.factors[0])]
    if used:
        assert all(np.isfinite(one.log_partition).all() for one in gibbs)
    _, v, others = pickle.loads(pickle.dumps((graph, u, gibbs)))
    np.testing.assert_array_equal(others[0].value_of(v), gibbs[0].value_of(u))
    for one, other in zip(gibbs, others, strict=True):
        np.testing.assert_array_equal(other.log_partition, one.log_partition)
    alone = pickle.loads(pickle.dumps(gibbs[0]))
    np.testing.assert_array_equal(alone.entropy, gibbs[0].entropy)
    with pytest.raises(ValueError, match="another graph"):
        alone.value_of(u)
