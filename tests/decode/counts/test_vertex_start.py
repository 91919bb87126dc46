"""The start of LP-MAP at a best vertex, where all factors bound counts."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap import AtMostOne, Budget, FactorGraph, Or, Pair, Xor
from lpsmap_core import Solution, Status
from lpsmap_core.engine import admm
from lpsmap_decode.counts.vertex_start import VertexStart


def matchings(n: int, rng: np.random.Generator, mask: float = 0.0) -> FactorGraph:
    """Declare matchings of 5 by 6, some of whose scores are lower by a `mask`."""
    graph, scores = FactorGraph(), rng.standard_normal((n, 5, 6))
    scores[rng.random(scores.shape) < 0.2] += mask
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    return graph


def of_counts(seed: int) -> FactorGraph:
    """Draw a graph whose relaxation can have fractions."""
    rng, graph = np.random.default_rng(seed), FactorGraph()
    u = graph.variable_from(rng.normal(size=8)) ^ (rng.random(8) < 0.2)
    for kind in rng.choice([Or, AtMostOne, Budget], size=5):
        some = u[rng.permutation(8)[: rng.integers(2, 5)]]
        graph.add(kind(some, 2) if kind is Budget else kind(some))
    return graph


def assert_the_same(found: Solution, graph: FactorGraph) -> None:
    """Hold what was found from vertices to what the loop finds from nothing, with its bounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admm, "starts_of", lambda part, linear: [])
        by_loop = graph.solve_map(max_iter=20_000)
    np.testing.assert_allclose(found.objective, by_loop.objective, rtol=0, atol=1e-5)
    assert (found.objective <= by_loop.objective + by_loop.gap + 1e-9).all()
    assert (by_loop.objective <= found.objective + found.gap + 1e-9).all()


@pytest.mark.parametrize("mask", [0.0, -np.inf, -1e4, -1e9, -1e15])
def test_a_matching_is_solved_in_one_iteration(mask: float, rng: np.random.Generator) -> None:
    graph = matchings(3, rng, mask)
    found = graph.solve_map()
    assert (found.status == Status.SOLVED).all()
    assert (found.iterations == 1).all()
    np.testing.assert_allclose(found.values, np.round(found.values), atol=1e-12)
    np.testing.assert_allclose(found.gap, 0.0, atol=1e-9)
    assert_the_same(found, graph)


@pytest.mark.parametrize("seed", range(30))
def test_fractions_and_negations_agree_with_the_loop(seed: int) -> None:
    graph = of_counts(seed)
    found = graph.solve_map()
    assert found.ok
    assert_the_same(found, graph)


def test_a_mask_that_nothing_can_do_without() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[-1e9, -2e9], [0.5, 0.2]])
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    found = graph.solve_map()
    assert found.ok
    np.testing.assert_allclose(u.value, [[1.0, 0.0], [0.0, 1.0]], atol=1e-6)


def test_rows_of_padding_take_no_iterations(rng: np.random.Generator) -> None:
    scores = rng.standard_normal((20, 6, 8))
    scores[:, 4:] = -1e9
    values = []
    for some in (scores, scores[:, :4]):
        graph = FactorGraph()
        u = graph.variable_from(some)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        found = graph.solve_map()
        assert (found.status == Status.SOLVED).all()
        assert (found.iterations == 1).all()
        values.append(u.value[:, :4])
    np.testing.assert_allclose(*values, rtol=0, atol=1e-9)


def test_contradictions_are_named() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.ones(3))
    graph.add(Xor(u))
    graph.add(Xor(~u))
    with pytest.warns(match="contradict"):
        found = graph.solve_map()
    assert list(found.status) == [Status.INFEASIBLE]
    assert found.contradictions


def test_components_of_other_factors_are_solved_beside_it(rng: np.random.Generator) -> None:
    graph = matchings(4, rng)
    v = graph.variable_from(rng.standard_normal((4, 6)))
    graph.add(Xor(v[:, :3]))
    graph.add(Xor(v[:, 3:]))
    pair = graph.add(Pair(v[:, 0], v[:, 3], rng.standard_normal(4)))
    found = graph.solve_map(threads=2)
    assert found.ok
    assert sorted((found.iterations == 1).tolist()) == [False] * 4 + [True] * 4
    assert_the_same(found, graph)
    for one in found.structures(pair):
        assert one.probabilities.sum() == pytest.approx(1.0)


def test_what_is_served() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((51, 50)))
    graph.add(AtMostOne(u))
    graph.add(AtMostOne(u, axis=0))
    v = graph.variable_from(np.zeros((2, 2)))
    graph.add(AtMostOne(v))
    graph.add(AtMostOne(v, axis=0))
    part = graph._laid_out().part
    np.testing.assert_array_equal(np.diff(part.first_variable), [2550, 4])
    np.testing.assert_array_equal(VertexStart().serves(part), [False, True])


def test_without_adaptation_nothing_starts(rng: np.random.Generator) -> None:
    assert (matchings(3, rng).solve_map(adapt=False).iterations > 1).all()


def test_another_start_is_not_needed(rng: np.random.Generator) -> None:
    before, graph = matchings(3, rng).solve_map(), matchings(3, rng)
    found = graph.solve_map(warm_start=before)
    assert (found.iterations == 1).all()
