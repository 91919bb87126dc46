"""Users write to arrays that they gave or got, as optimisers do; solutions stay what they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import DepTree, Factor, FactorGraph, Pair, Xor

FloatArray = npt.NDArray[np.float64]


@pytest.fixture
def scores(rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal(6)


@pytest.fixture
def of_pairs(rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal(5)


def chain(scores: FloatArray, of_pairs: FloatArray) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Pair(u[:-1], u[1:], of_pairs))
    return graph


def test_a_solution_is_of_the_scores_that_were_solved(
    scores: FloatArray, of_pairs: FloatArray
) -> None:
    graph, twin = chain(scores, of_pairs), chain(scores.copy(), of_pairs.copy())
    solution, expected = graph.solve(), twin.solve()
    scores[...], of_pairs[...] = -100.0, 100.0
    np.testing.assert_array_equal(solution.objective, expected.objective)
    np.testing.assert_array_equal(solution.gap, expected.gap)
    found, wanted = (s.structures(g.factors[0]) for s, g in ((solution, graph), (expected, twin)))
    np.testing.assert_array_equal(found.scores, wanted.scores)
    decoded = solution.decode()
    assert decoded.proved.all()
    np.testing.assert_array_equal(decoded.score, expected.decode().score)


def test_marginals_of_additionals_are_the_callers(scores: FloatArray, of_pairs: FloatArray) -> None:
    graph = chain(scores, of_pairs)
    solution, (factor,) = graph.solve(), graph.factors
    known = solution.gap.copy()
    found = graph.additionals_of(factor)
    expected = found.copy()
    found[...] = 7.0
    np.testing.assert_array_equal(graph.additionals_of(factor), expected)
    del solution.gap
    np.testing.assert_array_equal(solution.gap, known)


@pytest.mark.parametrize("kind", [Xor, DepTree])
def test_arrays_of_a_start_are_its_own(kind: type[Factor], rng: np.random.Generator) -> None:
    """Whoever holds them need not hold the start, nor the solution."""
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((4, 4)))
    graph.add(kind(u))
    graph.add(Xor(u, axis=0))
    start = graph.solve().solved.end()
    assert start is not None
    arrays = start.u, start.duals, start.step_size
    known = [array.copy() for array in arrays]
    del start
    for _ in range(4):
        graph.rescore(u, rng.standard_normal((4, 4)))
        graph.solve()
    for array, before in zip(arrays, known, strict=True):
        np.testing.assert_array_equal(array, before)
