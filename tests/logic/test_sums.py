"""Sums over the structures of logic factors, tables and subsets, against their enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import judges
from checks import Case
from gibbs_checks import check_draws, check_gibbs
from lpsmap import (
    AndOut,
    AtMostOne,
    Bits,
    Budget,
    Dense,
    FactorGraph,
    Imply,
    Knapsack,
    Nand,
    Or,
    OrOut,
    Pair,
    Potts,
    TopK,
    Xor,
    XorOut,
)

ROWS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "Xor": (Xor, judges.xor),
    "XorOut": (XorOut, judges.xor_out),
    "AtMostOne": (AtMostOne, judges.at_most_one),
    "Or": (Or, judges.at_least_one),
    "Nand": (Nand, judges.nand),
    "Imply": (Imply, judges.imply),
    "OrOut": (OrOut, judges.or_out),
    "AndOut": (AndOut, judges.and_out),
    "Bits": (Bits, lambda k: (judges.binary_vectors(k), None)),
    "Budget": (lambda u: Budget(u, 2), lambda k: judges.budget(k, 2)),
    "no limit": (lambda u: Budget(u, 9), lambda k: judges.budget(k, 9)),
    "budget of 0": (lambda u: Budget(u, 0), lambda k: judges.budget(k, 0)),
    "TopK": (lambda u: TopK(u, 1), lambda k: judges.budget(k, 1, exact=True)),
    "at most k": (lambda u: TopK(u, 3, exact=False), lambda k: judges.budget(k, 3)),
    "exact": (
        lambda u: Budget(u, u.shape[-1] // 2, True),
        lambda k: judges.budget(k, k // 2, exact=True),
    ),
    "all": (lambda u: TopK(u, u.shape[-1]), lambda k: judges.budget(k, k, exact=True)),
}


def rows(name: str, k: int) -> Case:
    make, vertices = ROWS[name]
    return Case(lambda u, _: make(u), (k,), np.asarray(vertices(k)[0], dtype=np.float64))


def tables(*sizes: int) -> Case:
    """Return the choices of states of variables, with a score for each."""
    states = list(itertools.product(*map(range, sizes)))
    ends = np.cumsum(sizes)[:-1]
    m = [np.concatenate([np.eye(k)[j] for k, j in zip(sizes, y, strict=True)]) for y in states]

    def make(u: Any, eta_v: Any) -> Dense:
        blocks = [u[..., a:b] for a, b in itertools.pairwise([0, *ends, sum(sizes)])]
        return Dense(blocks, eta_v.reshape(-1, *sizes))

    return Case(make, (sum(sizes),), np.array(m), np.eye(len(states)))


def pairs() -> Case:
    m, n = judges.pair()
    return Case(
        lambda u, eta_v: Pair(u[:, 0], u[:, 1], eta_v[:, 0]), (2,), np.asarray(m), np.asarray(n)
    )


TABLES = {
    "Pair": pairs,
    "Dense": lambda: tables(2, 3),
    "one": lambda: tables(3),
    "three": lambda: tables(2, 1, 2),
}


@pytest.mark.parametrize("degree", range(1, 9))
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, degree: int) -> None:
    check_gibbs(rows(name, degree))


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str) -> None:
    check_gibbs(TABLES[name]())
    check_draws(TABLES[name]())


@pytest.mark.parametrize("name", ROWS)
def test_samples_have_the_probabilities(name: str) -> None:
    check_draws(rows(name, 4))


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e3, 1e8])
@pytest.mark.parametrize("name", ROWS)
def test_scores_of_any_size(name: str, scale: float) -> None:
    """Scores of two structures of similar weight beside others, and masks in all of them."""
    rng, case = np.random.default_rng(0), rows(name, 5)
    a = scale * np.rint(3.0 * rng.standard_normal((6, 5))) + rng.standard_normal((6, 5))
    for shift in (0.0, -1e9, 1e7):
        graph, _, factor = case.graph(a + shift, np.empty((6, 0)))
        gibbs = graph.gibbs(factor)
        for r in range(6):
            exact = [math.fsum(row) for row in case.m * (a[r] + shift)]
            top = max(exact)
            weight = np.exp([x - top for x in exact])
            size = 1e-15 * max(1.0, np.abs(exact).max())
            np.testing.assert_allclose(
                gibbs.log_partition[r], top + np.log(weight.sum()), atol=8 * size
            )
            found, p = gibbs.marginals[r], weight / weight.sum()
            np.testing.assert_allclose(found, p @ case.m, rtol=0, atol=1e-14 + 8 * size)


def test_softmax_and_sigmoids() -> None:
    scores = np.random.default_rng(0).standard_normal((3, 7))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    choice, bits = graph.gibbs(graph.add(Xor(u))), graph.gibbs(graph.add(Bits(~u)))
    weight = np.exp(scores)
    np.testing.assert_allclose(
        choice.marginals, weight / weight.sum(axis=1, keepdims=True), rtol=1e-14
    )
    np.testing.assert_allclose(choice.log_partition, np.log(weight.sum(axis=1)), rtol=1e-14)
    np.testing.assert_allclose(bits.marginals, 1.0 / (1.0 + weight), rtol=1e-14)
    np.testing.assert_allclose(bits.log_partition, np.log1p(weight).sum(axis=1), rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (Xor, 200),
        (AtMostOne, 201),
        (Or, 2**200 - 1),
        (OrOut, 2**199),
        (Bits, 2**200),
        (lambda u: Budget(u, 100), sum(math.comb(200, k) for k in range(101))),
        (lambda u: TopK(u, 100), math.comb(200, 100)),
    ],
    ids=["Xor", "AtMostOne", "Or", "OrOut", "Bits", "Budget", "TopK"],
)
def test_counts_of_large_rows(make: Any, count: int) -> None:
    graph = FactorGraph()
    gibbs = graph.gibbs(graph.add(make(graph.variable((2, 200)))))
    assert gibbs.count().tolist() == [count, count]
    np.testing.assert_allclose(gibbs.log_partition, math.log(count), rtol=1e-12)
    np.testing.assert_allclose(gibbs.entropy, math.log(count), rtol=1e-12)


def test_masks_lengths_and_empty_rows() -> None:
    """A row is as if it were alone."""
    scores = np.random.default_rng(0).standard_normal((4, 6))
    mask = np.array([True, False, True, True, True, False])
    for make, given in (
        (lambda u, **rest: Or(u, **rest), [4, 1, 6, 3]),
        (lambda u, **rest: Budget(u, 2, **rest), [4, 0, 6, 3]),
        (lambda u, **rest: TopK(u, 2, exact=False, **rest), [4, 0, 6, 3]),
        (lambda u, **rest: Bits(u, **rest), [4, 0, 6, 3]),
        (lambda u, **rest: XorOut(u, **rest), [4, 1, 6, 3]),
    ):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        gibbs = graph.gibbs(graph.add(make(u, lengths=given, mask=mask)))
        for r, n in enumerate(given):
            inside = np.flatnonzero(mask & (np.arange(6) < n))
            alone = FactorGraph()
            v = alone.variable_from(scores[r, inside])
            single = alone.gibbs(alone.add(make(v)))
            expected = np.zeros(6)
            expected[inside] = single.marginals
            assert gibbs.log_partition[r] == pytest.approx(single.log_partition, abs=1e-14)
            np.testing.assert_allclose(gibbs.marginals[r], expected, atol=1e-15)


def test_equal_states() -> None:
    """A Potts model's marginals by its definition."""
    scores = np.random.default_rng(0).standard_normal((2, 3))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    factor = graph.add(Potts(u[0], u[1], 0.7))
    weight = np.exp(scores[0][:, None] + scores[1] + 0.7 * np.eye(3))
    equal = np.trace(weight) / weight.sum()
    np.testing.assert_allclose(graph.gibbs(factor).additionals, equal, rtol=1e-13)


def test_no_rows_and_no_sums() -> None:
    graph = FactorGraph()
    gibbs = graph.gibbs(graph.add(Budget(graph.variable((0, 4)), 2)))
    assert gibbs.log_partition.shape == (0,)
    assert gibbs.marginals.shape == (0, 4)
    knapsack = graph.add(Knapsack(graph.variable(3), [1.0, 2.0, 3.0], 2.5))
    with pytest.raises(TypeError, match="Knapsack has no inference over its structures"):
        graph.gibbs(knapsack)


def test_subsets_beyond_memory_are_refused() -> None:
    graph = FactorGraph()
    factor = graph.add(Budget(graph.variable(10**6), 10**6 // 2))
    with pytest.raises(ValueError, match=r"sums over subsets: n: got 1000000, which needs .* GiB"):
        graph.gibbs(factor)
