"""Samples of trees of factors, against the list of all assignments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from lpsmap import AtMostOne, DepTree, Factor, FactorGraph, Matching, Or, Pair, Sequence, Xor
from random_forests import enumerate_graph, random_forest

N_SAMPLES = 4000


def drawn(seed: int, scale: float = 1.0, n_factors: int = 5) -> FactorGraph:
    """Return a random forest with random scores."""
    rng, graph = np.random.default_rng(seed), FactorGraph()
    scores = scale * rng.standard_normal(1 + 4 * n_factors)
    random_forest(rng, graph, scores, lambda shape: scale * rng.standard_normal(shape), n_factors)
    return graph


def check(graph: FactorGraph, seed: int = 0) -> None:
    """Hold frequencies, additionals and log-probabilities to the enumeration."""
    gibbs, truth = graph.gibbs(), enumerate_graph(graph)
    samples = gibbs.sample(N_SAMPLES, seed)
    inside = np.flatnonzero(gibbs.component_of(graph.blocks[0]) >= 0)
    assert not np.delete(samples.values, inside, axis=1).any()
    number = {x.tobytes(): i for i, x in enumerate(truth.points[:, inside].astype(np.int8))}
    which = np.array([number[x.tobytes()] for x in samples.values[:, inside].astype(np.int8)])
    log_p = samples.log_probabilities.sum(axis=1)
    np.testing.assert_allclose(log_p, truth.log_p[which], atol=1e-9)
    for found, n in zip(samples.additionals, truth.extras, strict=True):
        np.testing.assert_array_equal(found.reshape(N_SAMPLES, -1), n.reshape(len(n), -1)[which])
    again = gibbs.log_probability(samples.values, samples.additionals)
    np.testing.assert_array_equal(again, samples.log_probabilities)
    every = gibbs.log_probability(truth.points, truth.extras)
    np.testing.assert_allclose(every.sum(axis=1), truth.log_p, atol=1e-9)
    counts, expected = np.bincount(which, minlength=len(number)), N_SAMPLES * np.exp(truth.log_p)
    common = expected >= 5.0
    seen = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    kept = expected > 1e-9
    if kept.sum() > 1:
        seen, expected = seen[kept], expected[kept]
        assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-4


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(12))
def test_frequencies_are_those_of_all_assignments(seed: int, scale: float) -> None:
    graph = drawn(seed, scale, 4)
    if np.isfinite(enumerate_graph(graph).log_partition):
        check(graph)


def test_masks() -> None:
    """One factor cannot avoid a masked variable."""
    scores = np.array([0.3, -1e9, -0.4, 0.2, -np.inf, 0.1])
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u[:3]))
    graph.add(AtMostOne(u[2:5]))
    graph.add(Or([u[1], ~u[5]]))
    check(graph)
    scores[[0, 2]] = -1e9
    graph.rescore(u, scores)
    check(graph)


def test_huge_scores_give_the_best_assignment() -> None:
    for seed in range(10):
        graph = drawn(seed, 1e5)
        truth = enumerate_graph(graph)
        if np.isfinite(truth.log_partition):
            samples = graph.gibbs().sample(5, 0)
            best = truth.points[truth.log_p.argmax()]
            inside = graph.gibbs().component_of(graph.blocks[0]) >= 0
            np.testing.assert_array_equal(samples.values, np.tile(best * inside, (5, 1)))


def test_components_without_assignments_and_with_nan() -> None:
    scores = np.zeros((4, 3))
    scores[1], scores[2, 0] = -np.inf, np.nan
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    w = graph.variable_from(np.zeros(2))
    samples = graph.gibbs().sample(6, 0)
    values = samples.values[:, u.index]
    assert (values[:, [0, 3]].sum(axis=-1) == 1.0).all()
    assert not values[:, 1].any() and np.isnan(values[:, 2]).all()
    assert not samples.values[:, w.index].any()
    np.testing.assert_allclose(samples.log_probabilities[:, [0, 3]], -np.log(3.0))
    assert np.isnan(samples.log_probabilities[:, 1:3]).all()


def test_impossible_messages() -> None:
    """A variable that one factor forces and another one forbids."""
    graph = FactorGraph()
    u = graph.variable_from(np.array([-np.inf, 0.0, -np.inf, 0.0, 0.0]))
    graph.add(Xor(u[:2]))
    graph.add(Xor(u[[1, 3]]))
    graph.add(Or([u[2], ~u[1]]))
    graph.add(AtMostOne(u[4:]))
    samples = graph.gibbs().sample(4, 0)
    assert not samples.values[:, :4].any() and np.isnan(samples.log_probabilities[:, 0]).all()
    np.testing.assert_allclose(samples.log_probabilities[:, 1], -np.log(2.0))


def test_samples_of_large_trees_of_factors_are_allowed_and_have_the_marginals() -> None:
    """Sixteen sentences with a tagging and a tree each, connected in a chain: 63 factors."""
    rng, n, n_samples = np.random.default_rng(0), 16, 500
    graph = FactorGraph()
    tags = graph.variable_from(rng.standard_normal((n, 5, 3)))
    arcs = graph.variable_from(rng.standard_normal((n, 5, 5)))
    graph.add(Sequence(tags, rng.standard_normal((3, 3))))
    graph.add(DepTree(arcs))
    graph.add(Pair(tags[:, 0, 0], arcs[:, 2, 2], rng.standard_normal(n)))
    graph.add(Pair(tags[1:, 4, 1], ~tags[:-1, 4, 2], rng.standard_normal(n - 1)))
    gibbs = graph.gibbs()
    assert len(gibbs.log_partition) == 1
    samples = gibbs.sample(n_samples, 1)
    assert (samples.values[:, tags.index].sum(axis=-1) == 1.0).all()
    assert (samples.values[:, arcs.index].sum(axis=-1) == 1.0).all()
    m = np.concatenate([gibbs.value_of(x).reshape(-1) for x in (tags, arcs)])
    found = samples.values.mean(axis=0)
    assert (np.abs(found - m) < 6.0 * np.sqrt(m * (1 - m) / n_samples) + 6.0 / n_samples).all()
    for factor, x in zip(graph.factors, samples.additionals, strict=True):
        expected, x = gibbs.additionals_of(factor), x.reshape(n_samples, -1)
        deviation = 6.0 * (x.std(axis=0) + 1.0 / np.sqrt(n_samples)) / np.sqrt(n_samples)
        assert (np.abs(x.mean(axis=0) - expected.reshape(-1)) < deviation).all()
    mean = samples.log_probabilities.mean()
    spread = samples.log_probabilities.std() / np.sqrt(n_samples)
    assert abs(mean + gibbs.entropy[0]) < 6.0 * spread


def test_seeds_repeat_samples() -> None:
    gibbs = drawn(3).gibbs()
    one, other = gibbs.sample(20, 7), gibbs.sample(20, np.random.default_rng(7))
    np.testing.assert_array_equal(one.values, other.values)
    assert (one.values != gibbs.sample(20, 8).values).any()


def test_empty_batches() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from(np.zeros((0, 3)))))
    samples = graph.gibbs().sample(4, 0)
    assert samples.values.shape == (4, 0) and samples.log_probabilities.shape == (4, 0)
    assert samples.additionals[0].shape == (4, 0)


class _Summed(DepTree):
    """Trees with sums alone."""

    inference = Factor.inference

    def log_partition(self) -> Any:
        """Return the sums."""
        return DepTree.inference(self)


def test_bad_input() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((2, 2)))
    graph.add(Sequence(u, np.zeros((2, 2))))
    gibbs = graph.gibbs()
    with pytest.raises(ValueError, match="sample: n"):
        gibbs.sample(0)
    with pytest.raises(ValueError, match="sample: n: got .* GiB of memory"):
        gibbs.sample(10**14)
    with pytest.raises(ValueError, match=r"values has shape \(3,\); expected \(4,\) or \(n, 4\)"):
        gibbs.log_probability(np.zeros(3))
    with pytest.raises(ValueError, match="additionals has 2 entries; expected 1"):
        gibbs.log_probability(np.zeros(4), [np.zeros(8), np.zeros(8)])
    with pytest.raises(ValueError, match=r"has shape \(0,\); expected \(8,\)"):
        gibbs.log_probability(np.zeros(4))
    with pytest.raises(TypeError, match="log_probability: values"):
        gibbs.log_probability("ab")
    for kind in (Matching, _Summed):
        graph = FactorGraph()
        graph.add(kind(graph.variable((2, 2))))
        with pytest.raises(TypeError, match=f"{kind.__name__} has no inference"):
            graph.gibbs().sample()
