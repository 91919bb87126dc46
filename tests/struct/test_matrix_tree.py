"""Sums over trees that may cross, held against enumeration, counts and rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import judges
import test_dep_tree
from gibbs_checks import check_draws, check_gibbs
from lpsmap import DepTree, FactorGraph
from lpsmap_core import Scores

CASES = {
    "trees": lambda: test_dep_tree.case(4, False, False),
    "trees of a root": lambda: test_dep_tree.case(4, False, True, packed=False),
    "labelled trees": lambda: test_dep_tree.case(3, False, True, True, 2),
    "one word": lambda: test_dep_tree.case(1, False, True),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_rankings_and_counts_are_those_of_the_enumeration(name: str) -> None:
    check_gibbs(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_probabilities(name: str) -> None:
    check_draws(CASES[name]())


def log_partition(scores: Any, **options: Any) -> Any:
    graph = FactorGraph()
    return graph.gibbs(graph.add(DepTree(graph.variable_from(scores), **options))).log_partition


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_uniform_scores_count_trees(n: int) -> None:
    """Cayley: ``(n + 1)^(n - 1)`` trees, ``n^(n - 1)`` of which have one root."""
    scores = np.zeros((n, n))
    np.testing.assert_allclose(log_partition(scores), (n - 1) * np.log(n + 1), rtol=1e-13)
    single = log_partition(scores, single_root=True)
    np.testing.assert_allclose(single, (n - 1) * np.log(n), rtol=1e-12, atol=1e-12)


def test_words_that_prefer_each_other_lose_no_digit() -> None:
    """Determinants in floating point are 0 here; in rational numbers they are what is found."""
    rng = np.random.default_rng(0)
    n = 6
    powers = rng.integers(-3, 4, size=(n, n))
    powers[np.arange(n), np.arange(n)] = -150  # the root weighs 2^-150
    weights = [[Fraction(2) ** int(p) for p in row] for row in powers]
    laplacian = [
        [sum(weights[m]) if m == h else -weights[m][h] for h in range(n)] for m in range(n)
    ]
    total = determinant(laplacian)
    expected = np.log(float(total * 2**150)) - 150 * np.log(2.0)
    np.testing.assert_allclose(log_partition(powers * np.log(2.0)), expected, rtol=1e-14)
    plain = np.linalg.det(np.array(laplacian, dtype=np.float64))
    assert abs(plain / 2.0**-150 - float(total * 2**150)) > 1.0


def determinant(rows: list[list[Fraction]]) -> Fraction:
    """Return the determinant, by elimination."""
    rows, value = [list(row) for row in rows], Fraction(1)
    for k in range(len(rows)):
        value *= rows[k][k]
        for i in range(k + 1, len(rows)):
            ratio = rows[i][k] / rows[k][k]
            rows[i] = [a - ratio * b for a, b in zip(rows[i], rows[k], strict=True)]
    return value


def test_masks_lengths_and_what_has_no_tree() -> None:
    rng = np.random.default_rng(1)
    scores = rng.standard_normal((4, 5, 5))
    scores[1, :, 2] = -np.inf  # nothing hangs from word 2
    scores[2, [0, 1], [0, 1]] = scores[2, :, [2, 3, 4]] = -np.inf  # nothing hangs from the root
    scores[2, [2, 3, 4], [2, 3, 4]] = -np.inf
    graph = FactorGraph()
    factor = DepTree(graph.variable_from(scores), lengths=[5, 5, 5, 0])
    gibbs = graph.gibbs(graph.add(factor))
    assert gibbs.marginals[1, :, 2][[0, 1, 3, 4]].max() == 0.0
    np.testing.assert_allclose(gibbs.marginals[:2].sum(axis=2), 1.0, atol=1e-13)
    assert gibbs.log_partition[2] == -np.inf and not gibbs.marginals[2].any()
    assert gibbs.log_partition[3] == 0.0


def test_two_roots_are_no_tree_of_one() -> None:
    scores = np.full((3, 3), -np.inf)
    scores[0, 0] = scores[1, 1] = scores[2, 0] = 1.0
    assert np.isclose(log_partition(scores), 3.0)
    assert log_partition(scores, single_root=True) == -np.inf


def test_huge_scores() -> None:
    scores = 1e8 * np.random.default_rng(2).standard_normal((20, 20))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    gibbs = graph.gibbs(graph.add(DepTree(u, single_root=True)))
    graph.solve_map()
    np.testing.assert_allclose(gibbs.marginals, u.value, atol=1e-5)  # 1e8 is known to 1e-8
    np.testing.assert_allclose(gibbs.log_partition, (scores * u.value).sum(), rtol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0, 8.0, 30.0])
def test_small_probabilities_keep_their_digits(scale: float) -> None:
    """By the inverse of the Laplacian for small scales, and by elimination for large ones."""
    n, rng = 4, np.random.default_rng(0)
    scores = scale * rng.standard_normal((40, n, n))
    graph = FactorGraph()
    gibbs = graph.gibbs(graph.add(DepTree(graph.variable_from(scores))))
    trees = np.array(judges.trees(n)[0], dtype=np.float64).reshape(-1, n, n)
    for r in range(len(scores)):
        total = (trees * scores[r]).sum(axis=(1, 2))
        weight = np.exp(total - total.max())
        for i, j in np.ndindex(n, n):
            expected = math.fsum(weight[trees[:, i, j] == 1.0]) / math.fsum(weight)
            assert gibbs.marginals[r, i, j] == pytest.approx(expected, rel=1e-10, abs=1e-300)


def test_products_by_kept_inverses_are_those_computed_again() -> None:
    """Also with masks, a shorter sentence, weak roots, where differences cancel, and new scores."""
    rng, lengths = np.random.default_rng(1), np.array([6, 6, 4])
    graph = FactorGraph()
    factor = graph.add(DepTree(graph.variable((3, 6, 6)), projective=False, lengths=lengths))
    eta, other, d = rng.normal(size=(3, int(factor.offsets[-1])))
    eta[[2, 9]] = -np.inf
    eta[36:72:7] -= 80.0
    rows, nothing = np.arange(3), np.empty(0)
    kept = factor.log_partition()
    kept.beliefs(rows, Scores(eta, nothing))
    for own in (eta, other):
        again = factor.log_partition().hessian_product(
            rows, Scores(own, nothing), Scores(d, nothing)
        )
        found = kept.hessian_product(rows, Scores(own, nothing), Scores(d, nothing))
        np.testing.assert_allclose(found.eta_u, again.eta_u, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("scale", [30.0, 300.0])
def test_products_of_large_scores(scale: float) -> None:
    """The arcs into a word have one probability in all, which no direction changes."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = FactorGraph()
        u = graph.variable_from(scale * rng.standard_normal((1, 5, 5)))
        moved = graph.gibbs(graph.add(DepTree(u, single_root=True))).jvp(rng.standard_normal(25))
        np.testing.assert_allclose(moved[1].reshape(5, 5).sum(axis=1), 0.0, rtol=0, atol=1e-9)
