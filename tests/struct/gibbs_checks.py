"""Gibbs distributions held against an enumeration of the structures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from checks import Case
from judges import central_difference
from lpsmap_dynamic import Gibbs

__all__ = ["check_draws", "check_gibbs", "check_sums_and_derivatives", "enumerate_gibbs"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

QUANTILE = 5.0
"""Standard deviations by which a chi-square statistic may be off."""


class Enumerated(NamedTuple):
    """What sums over listed structures give."""

    scores: FloatArray
    log_partition: float
    entropy: float
    m: FloatArray
    n: FloatArray


def enumerate_gibbs(
    m: FloatArray, n: FloatArray, eta_u: FloatArray, eta_v: FloatArray, negated: BoolArray
) -> Enumerated:
    """Return the Gibbs distribution over listed structures, by its definition."""
    on = np.where(negated, 1.0 - m, m)  # of the variables

    def score(numbers: FloatArray, of: FloatArray) -> FloatArray:
        return (numbers * np.where(numbers != 0.0, of, 0.0)).sum(axis=1)

    scores = score(on, eta_u) + score(n, eta_v)
    if scores.max() == -np.inf:
        return Enumerated(scores, -np.inf, 0.0, 0.0 * m[0], 0.0 * n[0])
    weights = np.exp(scores - scores.max())
    p = weights / weights.sum()
    entropy = -(p * np.log(p, where=p > 0.0, out=np.zeros_like(p))).sum()
    return Enumerated(scores, scores.max() + np.log(weights.sum()), entropy, p @ m, p @ n)


def check_gibbs(case: Case) -> None:
    """Hold sums, derivatives, rankings and counts against the enumeration."""
    for gibbs, a, eta_v, negated in check_sums_and_derivatives(case):
        _check_rankings(case, gibbs, a, eta_v, negated)
        counts = gibbs.count()
        for r in range(len(a)):
            truth = enumerate_gibbs(case.m, case.n, a[r], eta_v[r], negated)
            assert counts[r] == np.count_nonzero(truth.scores > -np.inf)


def check_sums_and_derivatives(
    case: Case, seed: int = 0, rows: int = 4
) -> list[tuple[Gibbs, FloatArray, FloatArray, BoolArray]]:
    """Hold sums and derivatives against the enumeration; return what was held, and its scores.

    Some rows have ties, some forbidden variables and additionals, some large scores.
    """
    held = []
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((rows, case.m.shape[1]))
    eta_v = rng.standard_normal((rows, case.n.shape[1]))
    a[1::4], eta_v[1::4] = np.rint(a[1::4]), np.rint(eta_v[1::4])
    a[2::4] *= 30.0
    a[3::4][rng.random(a[3::4].shape) < 0.15] = -np.inf
    eta_v[3::4][rng.random(eta_v[3::4].shape) < 0.05] = -np.inf
    for negated in (np.zeros(a.shape[1], dtype=bool), rng.random(a.shape[1]) < 0.4):
        graph, _, factor = case.graph(a, eta_v, negated)
        _check_sums(case, graph.gibbs(factor), a, eta_v, negated)
        _check_derivatives(case, a[:2], eta_v[:2], negated, rng)
        held.append((graph.gibbs(factor), a, eta_v, negated))
    return held


def _check_sums(
    case: Case, gibbs: Gibbs, a: FloatArray, eta_v: FloatArray, negated: BoolArray
) -> None:
    for r in range(len(a)):
        truth = enumerate_gibbs(case.m, case.n, a[r], eta_v[r], negated)
        scale = 1.0 + np.abs(truth.scores[truth.scores > -np.inf]).max(initial=0.0)
        np.testing.assert_allclose(
            gibbs.log_partition[r], truth.log_partition, rtol=0, atol=1e-12 * scale
        )
        np.testing.assert_allclose(gibbs.entropy[r], truth.entropy, atol=1e-10 * scale)
        np.testing.assert_allclose(gibbs.marginals[r].reshape(-1), truth.m, atol=1e-10 * scale)
        np.testing.assert_allclose(
            gibbs.additionals.reshape(len(a), case.n.shape[1])[r], truth.n, atol=1e-9 * scale
        )


def _check_rankings(
    case: Case, gibbs: Gibbs, a: FloatArray, eta_v: FloatArray, negated: BoolArray
) -> None:
    every = {tuple(row) for row in np.concatenate([case.m, case.n], axis=1).tolist()}
    for k in (3, len(every) + 2):
        best = gibbs.k_best(k)
        for r in range(len(a)):
            truth = enumerate_gibbs(case.m, case.n, a[r], eta_v[r], negated)
            ranked = np.sort(truth.scores[truth.scores > -np.inf])[::-1][:k]
            found = best[r]
            np.testing.assert_allclose(
                found.scores, ranked, atol=1e-12 * (1 + abs(ranked).max(initial=0))
            )
            np.testing.assert_allclose(
                found.probabilities, np.exp(ranked - truth.log_partition), atol=1e-10
            )
            flat = [np.append(y.variables, y.additionals) for y in found]
            listed = {tuple(row.tolist()) for row in flat}
            assert len(listed) == len(ranked)
            assert listed <= every
        extra = best.additionals if case.n.size else None
        logs = gibbs.log_probability(best.variables, extra)
        np.testing.assert_allclose(
            np.exp(logs[best.mask]), best.probabilities[best.mask], atol=1e-10
        )


def _check_derivatives(
    case: Case, a: FloatArray, eta_v: FloatArray, negated: BoolArray, rng: np.random.Generator
) -> None:
    d_u, d_v = rng.standard_normal(a.shape), rng.standard_normal(eta_v.shape)

    def numbers(t: FloatArray) -> FloatArray:
        graph, _, factor = case.graph(a + t * d_u, eta_v + t * d_v, negated)
        gibbs = graph.gibbs(factor)
        parts = gibbs.log_partition, gibbs.marginals, gibbs.additionals
        return np.concatenate([part.reshape(-1) for part in parts])

    graph, _, factor = case.graph(a, eta_v, negated)
    moved = graph.gibbs(factor).jvp(d_u.reshape(-1), d_v)
    slope = central_difference(numbers, np.zeros(()), 1e-4)
    np.testing.assert_allclose(
        np.concatenate([part.reshape(-1) for part in moved]),
        slope,
        atol=2e-7 * (1 + abs(slope).max()),
    )


def check_draws(case: Case, n: int = 4000, seed: int = 0) -> None:
    """Hold frequencies of samples against probabilities, by a chi-square statistic."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((2, case.m.shape[1]))
    eta_v = 0.5 * rng.standard_normal((2, case.n.shape[1]))
    graph, _, factor = case.graph(a, eta_v)
    drawn = graph.gibbs(factor).sample(n, seed)
    again = graph.gibbs(factor).sample(n, np.random.default_rng(seed))
    np.testing.assert_array_equal(drawn.variables, again.variables)
    vertices = np.concatenate([case.m, case.n], axis=1)
    number = {tuple(row): y for y, row in enumerate(vertices.tolist())}
    none = np.zeros(case.m.shape[1], dtype=bool)
    for r in range(2):
        truth = enumerate_gibbs(case.m, case.n, a[r], eta_v[r], none)
        expected = n * np.exp(truth.scores - truth.log_partition)
        parts: list[Any] = [drawn[r].variables, drawn[r].additionals]
        flat = np.concatenate([part.reshape(n, -1) for part in parts], axis=1)
        observed = np.bincount([number[tuple(x)] for x in flat.tolist()], minlength=len(vertices))
        common = expected >= 5.0
        seen = np.append(observed[common], observed[~common].sum())
        asked = np.append(expected[common], expected[~common].sum())
        seen, asked = seen[asked > 0.0], asked[asked > 0.0]
        statistic, freedom = ((seen - asked) ** 2 / asked).sum(), max(len(asked) - 1, 1)
        assert statistic < freedom + QUANTILE * np.sqrt(2.0 * freedom)
