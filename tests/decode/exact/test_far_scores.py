"""Scores that float64 cannot add to the others, held to sums of fractions."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest

from lpsmap import ConvergenceWarning, FactorGraph, Matching, Nand, Pair, Xor
from lpsmap_core.layout.layout import build_layout
from lpsmap_core.solution.dominant_scores import reduce_dominant_scores

MASKS = [-1e15, -3.4e38, float(np.finfo(np.float32).min), float(np.finfo(np.float64).min)]
ROWS = ((0, 1, 2), (2, 3, 4))
BONUS = 0.5


def scores_of(masks: list[float], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    masked = rng.choice([0.0, *masks], p=[0.4] + [0.6 / len(masks)] * len(masks), size=5)
    return np.where(masked < 0.0, masked, rng.normal(size=5))


def graph_of(scores: np.ndarray) -> FactorGraph:
    """Two choices that share a variable, and a bonus for the first and the fourth."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    for row in ROWS:
        graph.add(Xor(u[list(row)]))
    graph.add(Pair(u[[0]], u[[3]], [BONUS]))
    return graph


def exact_sum(scores: np.ndarray, y: tuple[int, ...]) -> Fraction:
    return sum((Fraction(s) for s, on in zip(scores, y, strict=True) if on), Fraction(0)) + (
        Fraction(BONUS) * y[0] * y[3]
    )


def allowed() -> list[tuple[int, ...]]:
    everything = itertools.product((0, 1), repeat=5)
    return [y for y in everything if all(sum(y[i] for i in row) == 1 for row in ROWS)]


@pytest.mark.parametrize("masks", [*([m] for m in MASKS), [-1e14, MASKS[2]], [-1e15, 1e30]])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_assignment_is_that_of_exact_sums(masks: list[float], seed: int) -> None:
    scores = scores_of(masks, seed)
    sums = sorted((exact_sum(scores, y) for y in allowed()), reverse=True)
    graph = graph_of(scores)
    found = graph.solve_map(exact=True)
    assert found.ok
    assert exact_sum(scores, tuple(found.values.astype(int))) == sums[0]
    assert found.score[0] == pytest.approx(max(float(sums[0]), -np.finfo(float).max))
    ranked = graph.k_best(3)
    assert [exact_sum(scores, tuple(one.values.astype(int))) for one in ranked] == sums[:3]
    relaxed = graph.solve_map()
    assert relaxed.ok
    assert relaxed.objective[0] + relaxed.gap[0] >= float(sums[0]) - 1e-9 * abs(float(sums[0]))
    with warnings.catch_warnings():
        # marginals of scores of several magnitudes may end with PRECISION_LIMIT
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = graph.solve()
    decoded = solution.decode()
    assert decoded.ok
    assert exact_sum(scores, tuple(decoded.values.astype(int))) == sums[0]


def test_nothing_is_done_to_scores_that_can_be_added(rng: np.random.Generator) -> None:
    graph = graph_of(1e9 * rng.normal(size=5))
    part = graph._laid_out().part
    given = graph.flat_scores(), np.array([1e-2])
    eta, eta_v, far = reduce_dominant_scores(part, *given)
    assert eta is given[0]
    assert eta_v is given[1]
    assert not far.any()


def test_a_mask_that_all_need_is_outweighed_by_no_sum() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.full((2, 3, 3), np.finfo(np.float64).min))
    graph.add(Matching(u))
    found = graph.solve_map(exact=True)
    assert found.ok
    np.testing.assert_array_equal(found.values.reshape(2, 3, 3).sum(axis=(1, 2)), [3.0, 3.0])


def test_masks_do_not_vanish_beside_tiny_scores() -> None:
    """Their quotient is less than any number, and so is every gap beside masks that are scaled."""
    scores = np.array([1e-300, -3.4e38, -3.4e38, 1e-300, -3.4e38])
    graph = graph_of(scores)
    found = graph.solve_map(exact=True)
    assert found.ok
    assert found.values.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    graph = FactorGraph()
    u = graph.variable_from([-3.4e38, -3.4e38, -3.4e38, 1e-300])
    graph.add(Xor(u[[0, 1]]))
    graph.add(Xor(u[[0, 2]]))
    graph.add(Nand(u[[0, 3]]))
    found = graph.solve_map(exact=True)
    assert found.values.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert found.bound[0] >= found.score[0] == -3.4e38


def test_a_batch_comes_near_as_its_components_do() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((6, 5)) * 10.0 ** rng.choice([0, 0, 13, 38, 300], (6, 5))
    scores[:, 0], scores[0] = -np.inf, 1e-300
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from(scores)))
    part = build_layout(graph.n_variables, graph.factors).part
    near, _, far = reduce_dominant_scores(part, scores.reshape(-1), np.empty(0))
    assert far.any()
    for c, row in enumerate(scores):
        one = FactorGraph()
        one.add(Xor(one.variable_from(row)))
        alone = build_layout(5, one.factors).part
        wanted, _, changed = reduce_dominant_scores(alone, row, np.empty(0))
        np.testing.assert_allclose(near.reshape(6, 5)[c], wanted, rtol=1e-14)
        assert changed[0] == far[c]
