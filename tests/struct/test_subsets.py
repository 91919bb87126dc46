"""Bit vectors and subsets of limited size against enumeration, NumPy's sort and the judge."""

from __future__ import annotations

import numpy as np
import pytest

import judges
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
from lpsmap_factors_struct import Bits, TopK


def bits(n):
    return pytest.param(
        Case(lambda u, eta_v: Bits(u), (n,), judges.binary_vectors(n)), id=f"{n} bits"
    )


def top(n, k, exact):
    subsets, _ = judges.budget(n, k, exact=exact)
    word = "exactly" if exact else "at most"
    return pytest.param(
        Case(lambda u, eta_v: TopK(u, k, exact), (n,), subsets), id=f"{word} {k} of {n}"
    )


CASES = [
    *(bits(n) for n in range(1, 7)),
    *(top(*x) for x in [(1, 0, True), (1, 1, True), (4, 2, True), (5, 4, True), (6, 3, True)]),
    *(top(*x) for x in [(1, 1, False), (3, 0, False), (5, 2, False), (6, 4, False), (3, 5, False)]),
]
SMALL = [bits(3), bits(4), top(4, 2, True), top(5, 2, False), top(5, 1, True)]


@pytest.mark.parametrize("case", CASES)
def test_best_subset_is_the_best_of_all(draws, case):
    check_oracle(case, draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_best_subset_is_the_best_of_all_in_many_draws(case):
    check_oracle(case, SLOW, seed=1)


@pytest.mark.parametrize("case", SMALL)
def test_sparsemap_and_gradients(draws, case):
    check_sparsemap(case, draws // 40)
    check_gradients(case, draws // 10)
    check_probabilities(case, draws // 10)


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL)
def test_sparsemap_and_gradients_in_many_draws(case):
    check_sparsemap(case, SLOW, seed=1)
    check_gradients(case, SLOW, seed=1)
    check_probabilities(case, 2 * SLOW, seed=1)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", ["normal", "integers", "sorted", "reversed", "equal"])
def test_larger_subsets_agree_with_a_sort(rng, graph, exact, kind):
    n, k = 300, np.arange(0, 300, 23)
    scores = rng.standard_normal((len(k), n))
    if kind == "integers":
        scores = np.round(scores)
    elif kind == "equal":
        scores[:] = 1.0
    elif kind != "normal":
        scores = np.sort(scores)[:, :: 1 if kind == "sorted" else -1]
    factor = TopK(graph.variable(scores.shape), k, exact)
    found, _ = run_oracle(factor, scores.reshape(-1), np.empty(0))
    for size, one, score in zip(k, found, scores, strict=True):
        best = np.sort(score)[n - size :]
        assert one.sum() == (size if exact else (best > 0).sum())
        expected = best.sum() if exact else np.maximum(best, 0.0).sum()
        assert one @ score == pytest.approx(expected, abs=1e-11)


def test_bits_are_their_scores_clipped(rng):
    scores = 2 * rng.standard_normal((8, 40))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    factor = graph.add(Bits(u))
    solution = graph.solve()
    np.testing.assert_allclose(u.value, np.clip(scores, 0, 1), rtol=0, atol=1e-11)
    for b, structures in enumerate(solution.structures(factor)):
        assert len(structures) <= 41
        mean = sum(s.probability * s.variables for s in structures)
        np.testing.assert_allclose(mean, u.value[b], rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [1.0, 0.1])
@pytest.mark.parametrize("coupled", [False, True])
def test_gradients_of_many_bits_are_exact(rng, scale, coupled):
    """Rounding in a Jacobian of some hundred structures is nothing to be divided by."""
    scores = 0.5 + scale * rng.standard_normal((20, 150))
    d = rng.standard_normal(scores.shape)
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Bits(u))
    if coupled:
        graph.add(TopK(u, scores.shape[1], exact=False))  # asks nothing
    by_scores, _ = graph.solve().vjp(d)
    inside = (scores > 0) & (scores < 1)
    np.testing.assert_allclose(by_scores.reshape(d.shape), d * inside, rtol=0, atol=1e-9)


def exactly(u):
    return TopK(u, u.shape[-1] // 2)


def at_most(u):
    return TopK(u, u.shape[-1] // 2, exact=False)


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4, 1e-8, 0.0])
@pytest.mark.parametrize("n", [10, 128, 300])
@pytest.mark.parametrize("make", [exactly, at_most, Bits])
def test_nearly_uniform_subsets_have_exact_gradients(rng, make, n, scale):
    """As after the initialisation of a network: the face has nearly all dimensions."""
    scores = 0.3 + scale * rng.standard_normal((4, n))
    d = rng.standard_normal(scores.shape)
    graph = FactorGraph()
    u = graph.variable_from(scores)
    factor = graph.add(make(u))
    solution = graph.solve()
    assert solution.ok
    inside = (u.value > 0) & (u.value < 1)
    tight = np.abs(u.value.sum(axis=1) - n // 2) < 1e-9 if make is not Bits else np.zeros(4, bool)
    mean = np.sum(d, axis=1, where=inside, keepdims=True) / inside.sum(axis=1, keepdims=True)
    expected = np.where(inside, d - np.where(tight[:, None], mean, 0.0), 0.0)
    found, _ = solution.vjp(d)
    np.testing.assert_allclose(found.reshape(d.shape), expected, rtol=0, atol=1e-13)
    for mu, structures in zip(u.value, solution.structures(factor), strict=True):
        mixture = sum(s.probability * s.variables for s in structures)
        np.testing.assert_allclose(mixture, mu, rtol=0, atol=2e-11)


def test_ragged_and_masked_batches_are_their_subsets(rng):
    scores = rng.standard_normal((4, 6))
    lengths = np.array([4, 0, 1, 6])
    mask = np.arange(6) < lengths[:, None]
    for make in (Bits, lambda u, **cut: TopK(u, [2, 0, 1, 3], **cut)):
        values = []
        for cut in ({"lengths": lengths}, {"mask": mask}):
            graph = FactorGraph()
            u = graph.variable_from(scores)
            graph.add(make(u, **cut))
            assert graph.solve().ok
            values.append(u.value)
        assert (values[0] == values[1]).all()
        for b, n in enumerate(lengths):
            alone = FactorGraph()
            one = alone.variable_from(scores[b, :n])
            alone.add(Bits(one) if make is Bits else TopK(one, [2, 0, 1, 3][b]))
            alone.solve()
            np.testing.assert_allclose(values[0][b, :n], one.value, rtol=0, atol=1e-10)


def test_subsets_are_decoded_to_what_is_on(graph):
    u = graph.variable(4)
    assert row_view(TopK(u, 2), 0).decode(np.array([0.0, 1, 0, 1]), np.empty(0)) == {"on": [1, 3]}
    assert row_view(Bits(u), 0).decode(np.zeros(4), np.empty(0)) == {"on": []}


@pytest.mark.filterwarnings("ignore:.*were not solved:UserWarning")
def test_forbidden_elements(rng):
    scores = np.array([[1.0, -np.inf, -np.inf, 0.5], [-np.inf] * 4])
    for make, ok in (
        (Bits, True),
        (lambda u: TopK(u, 2, False), True),
        (lambda u: TopK(u, 2), False),
    ):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(make(u))
        status = graph.solve().status.tolist()
        assert status == [Status.SOLVED, Status.SOLVED if ok else Status.INFEASIBLE]
        assert not u.value[0, 1:3].any()
        if ok:
            assert not u.value[1].any()


@pytest.mark.parametrize(
    ("k", "options", "message"),
    [
        (-1, {}, "TopK: k of factor 0 is -1; expected a whole number, 0 or more"),
        ([1, 1.5], {}, "TopK: k of factor 1 is 1.5; expected a whole number"),
        ([1, 2, 3], {}, r"TopK: k has shape \(3,\)"),
        (5, {}, "TopK: k is 5 for factor 0 of 4 elements; expected 0 to 4"),
        (2, {"lengths": [2, 1]}, "TopK: k is 2 for factor 1 of 1 elements"),
    ],
)
def test_wrong_sizes_are_named(graph, k, options, message):
    with pytest.raises(ValueError, match=message):
        TopK(graph.variable((2, 4)), k, **options)


@pytest.mark.parametrize("make", [Bits, lambda u: TopK(u, 1)])
def test_wrong_variables_are_named(graph, make):
    with pytest.raises(ValueError, match=r"variables has shape \(\); expected at least 1 axes"):
        make(graph.variable(3)[0])
    with pytest.raises(TypeError, match="variables"):
        make(np.zeros(3))
