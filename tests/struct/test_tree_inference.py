"""Samples, counts and the k best of trees that may cross, against enumeration and combinatorics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import judges
import test_dep_tree
from lpsmap import DepTree, FactorGraph
from lpsmap_dynamic import Gibbs
from lpsmap_factors_struct import tree_inference

N_SAMPLES = 4000

EITHER_ROOTS = pytest.mark.parametrize("single_root", [False, True])


def gibbs_of(scores: Any, **options: Any) -> Gibbs:
    graph = FactorGraph()
    found: Gibbs = graph.gibbs(graph.add(DepTree(graph.variable_from(scores), **options)))
    return found


def check_frequencies(scores: Any, single_root: bool, seed: int = 0, **options: Any) -> None:
    """Hold samples and ranks of one sentence to the enumeration, by a chi-square test."""
    trees = np.array(judges.tree_heads(len(scores), single_root=single_root))
    worth = scores[np.arange(len(scores)), trees].sum(axis=1)
    p = np.exp(worth - worth.max())
    p /= p.sum()
    gibbs = gibbs_of(scores, single_root=single_root, **options)
    drawn = gibbs.sample(N_SAMPLES, seed).variables.argmax(axis=-1)
    which = (drawn[:, None] == trees).all(axis=2)
    assert which.any(axis=1).all()
    counts = np.bincount(which.argmax(axis=1), minlength=len(trees))
    common = N_SAMPLES * p >= 5.0
    seen = np.append(counts[common], counts[~common].sum())
    expected = N_SAMPLES * np.append(p[common], p[~common].sum())
    kept = (expected > 0.0) | (seen > 0)
    seen, expected = seen[kept], expected[kept]
    if len(seen) > 1:
        assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-4
    allowed = np.flatnonzero(worth > -np.inf)
    assert gibbs.count() == len(allowed)
    best = gibbs.k_best(len(trees) + 1)
    np.testing.assert_allclose(best.scores, np.sort(worth[allowed])[::-1], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(best.probabilities, np.sort(p[allowed])[::-1], atol=1e-9)


@EITHER_ROOTS
@pytest.mark.parametrize("scale", [1e-8, 0.3, 1.0, 5.0, 1e4])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_frequencies_at_every_scale(n: int, scale: float, single_root: bool) -> None:
    rng = np.random.default_rng([n, single_root])
    check_frequencies(scale * rng.standard_normal((n, n)), single_root)


@EITHER_ROOTS
@pytest.mark.parametrize("seed", range(6))
def test_frequencies_with_forbidden_arcs(seed: int, single_root: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((4, 4))
    scores[rng.random(scores.shape) < 0.35] = -np.inf
    if gibbs_of(scores, single_root=single_root).log_partition > -np.inf:
        check_frequencies(scores, single_root)
    else:
        assert gibbs_of(scores, single_root=single_root).count() == 0


@EITHER_ROOTS
@pytest.mark.parametrize("mask", [-40.0, -700.0, -1e4, -1e9, -1e13])
def test_frequencies_where_every_tree_has_a_masked_arc(mask: float, single_root: bool) -> None:
    """Words prefer each other, so that random walks would hardly ever reach the root."""
    scores = np.random.default_rng(1).standard_normal((4, 4)) * (mask > -1e12)
    scores[np.arange(4), np.arange(4)] += mask
    check_frequencies(scores, single_root)
    scores[:2, 2:] += mask
    check_frequencies(scores, single_root)


@EITHER_ROOTS
def test_words_behind_the_first_alone_reach_the_root(single_root: bool) -> None:
    """Eliminated words have no way out but the root."""
    scores = np.zeros((3, 3))
    scores[1:, 0] = -np.inf
    scores[0, 0] = -np.inf
    check_frequencies(scores, single_root)


def test_samples_that_need_several_blocks_of_random_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_inference, "BLOCK", 40)
    check_frequencies(np.random.default_rng(0).standard_normal((3, 3)), False)
    drawn = gibbs_of(np.zeros((3, 2, 2))).sample(50, 0)
    assert (drawn.counts == 50).all()


@EITHER_ROOTS
@pytest.mark.parametrize("scale", [1e-8, 1.0, 30.0, 1e4])
def test_samples_of_long_sentences_are_trees_with_the_marginals(
    scale: float, single_root: bool
) -> None:
    n, n_samples = 100, 400
    scores = scale * np.random.default_rng(3).standard_normal((n, n))
    gibbs = gibbs_of(scores, single_root=single_root)
    drawn = gibbs.sample(n_samples, 4).variables
    for heads in drawn.argmax(axis=-1).tolist():
        assert test_dep_tree.is_tree(heads)
        assert not single_root or sum(m == h for m, h in enumerate(heads)) == 1
    m = gibbs.marginals
    deviation = np.sqrt(m * (1.0 - m) / n_samples) + 1.0 / n_samples
    assert (np.abs(drawn.mean(axis=0) - m) < 6.0 * deviation).all()


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_counts_of_uniform_trees(n: int) -> None:
    """Cayley: ``(n + 1)^(n - 1)`` trees, ``n^(n - 1)`` of which have one root."""
    scores = np.zeros((n, n))
    assert gibbs_of(scores).count() == (n + 1) ** (n - 1)
    assert gibbs_of(scores, single_root=True).count() == n ** (n - 1)
    assert gibbs_of(scores, packed=False).count() == (n + 1) ** (n - 1)
    labelled = gibbs_of(np.zeros((n, n, 3)), labelled=True)
    assert labelled.count() == (n + 1) ** (n - 1) * 3**n


def test_ranks_of_long_sentences_differ_and_descend() -> None:
    gibbs = gibbs_of(np.random.default_rng(0).standard_normal((40, 40)))
    best = gibbs.k_best(200)
    assert len(np.unique(best.variables.reshape(200, -1), axis=0)) == 200
    assert (np.diff(best.scores) <= 0.0).all()
    drawn = gibbs.sample(2000, 0)
    better = drawn.scores[drawn.scores > best.scores[-1]]
    assert np.isin(better.round(9), best.scores.round(9)).all()


def test_batches_of_lengths_negations_and_sentences_without_trees() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((5, 4, 4))
    scores[1, [0, 1, 2], [0, 1, 2]] = -np.inf  # no word hangs from the root
    scores[3, 0, 1] = np.nan
    graph = FactorGraph()
    u = graph.variable_from(scores)
    flipped = rng.random(u.shape) < 0.3
    flipped[1] = False  # a forbidden negated variable forces its slot
    gibbs = graph.gibbs(graph.add(DepTree(u ^ flipped, lengths=[4, 3, 0, 4, 2])))
    drawn, best = gibbs.sample(N_SAMPLES, 0), gibbs.k_best(3)
    assert drawn.counts.tolist() == [N_SAMPLES, 0, N_SAMPLES, 0, N_SAMPLES]
    assert best.counts.tolist() == [3, 0, 1, 0, 3]
    assert gibbs.count()[[0, 1, 2, 4]].tolist() == [125, 0, 1, 3]
    assert (drawn.variables[0].sum(axis=-1) == 1.0).all()
    logs = gibbs.log_probability(drawn.variables)
    shown = drawn.variables[4].reshape(N_SAMPLES, -1)
    _, first, counts = np.unique(shown, axis=0, return_index=True, return_counts=True)
    assert stats.chisquare(counts, N_SAMPLES * np.exp(logs[4, first])).pvalue > 1e-4


def test_forced_arcs() -> None:
    scores = np.random.default_rng(0).standard_normal((2, 3, 3))
    scores[0, 1, 0] = scores[1, 1, 0] = scores[1, 1, 1] = -np.inf
    graph = FactorGraph()
    u = graph.variable_from(scores)
    flipped = np.zeros(u.shape, dtype=bool)
    flipped[:, 1, :2] = True
    flipped[0, 1, 1] = False
    gibbs = graph.gibbs(graph.add(DepTree(u ^ flipped)))
    assert gibbs.count().tolist() == [4, 0]  # word 0 heads word 1; two heads of word 1
    assert gibbs.sample(7, 0).counts.tolist() == [7, 0]
    assert gibbs.k_best(9).counts.tolist() == [4, 0]
    np.testing.assert_allclose(gibbs.k_best(9).probabilities[0].sum(), 1.0)
    assert (gibbs.sample(7, 0).variables[0, :, 1, 0] == 1.0).all()


def test_empty_batches() -> None:
    gibbs = gibbs_of(np.zeros((0, 3, 3)))
    assert gibbs.sample(5, 0).variables.shape == (0, 0, 3, 3)
    assert gibbs.k_best(2).variables.shape == (0, 0, 3, 3)
    assert gibbs.count().shape == (0,)


def test_too_many_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="sample: n: got .* GiB of memory"):
        gibbs_of(np.zeros((10, 10))).sample(10**13)
    with pytest.raises(ValueError, match="k_best: k: got .* GiB of memory"):
        gibbs_of(np.zeros((40, 40))).k_best(10**13)
