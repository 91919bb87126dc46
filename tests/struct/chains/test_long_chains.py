"""Chains of many positions: solved as exactly as short ones, in time that grows with the length."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap_core import FactorGraph, Status
from lpsmap_factors_logic import Budget
from lpsmap_factors_struct import Sequence

pytestmark = pytest.mark.compiled

FloatArray = npt.NDArray[np.float64]

LIMIT = 60.0
"""Seconds that no solve here may take: alone, each takes less than one."""


def chain(scores: FloatArray, transitions: FloatArray) -> tuple[FactorGraph, Sequence]:
    """A graph of one declaration."""
    graph = FactorGraph()
    return graph, graph.add(Sequence(graph.variable_from(scores), transitions))


@pytest.mark.parametrize("scale", [10.0, 1.0, 1e-3])
def test_a_long_chain_is_solved_as_its_parts_are(scale: float, rng: np.random.Generator) -> None:
    """Steps of equal scores cut a chain into parts, which short chains solve."""
    parts, length, n = 500, 100, 4
    scores = scale * rng.standard_normal((parts, length, n))
    steps = scale * rng.standard_normal((parts, length, n, n))
    steps[:, -1] = 0.0
    long, _ = chain(scores.reshape(-1, n), steps.reshape(-1, n, n)[:-1])
    short, _ = chain(scores, steps[:, :-1])
    d = rng.standard_normal(scores.shape)
    whole = long.solve(max_time=LIMIT)
    each = short.solve(max_time=LIMIT)
    assert whole.status.tolist() == [Status.SOLVED]
    np.testing.assert_allclose(whole.values, each.values, rtol=0, atol=1e-11)
    d_whole, d_each = whole.vjp(d.ravel())[0], each.vjp(d.ravel())[0]
    # flows below 1e-13 of an edge are rounding, in one of the two and not in the other
    close = np.abs(np.ravel(d_whole) - np.ravel(d_each)) < 1e-8
    assert close.mean() > 0.9999


def test_a_sloped_derivative_keeps_its_digits(rng: np.random.Generator) -> None:
    """What all states of a position share changes nothing, however much it adds up to."""
    length, n = 100_000, 3
    graph, _ = chain(rng.standard_normal((length, n)), rng.standard_normal((n, n)))
    solution = graph.solve(max_time=LIMIT)
    assert solution.ok
    d = rng.standard_normal((length, n))
    plain = solution.vjp(d.ravel())[0]
    sloped = solution.vjp((d + 100.0).ravel())[0]
    np.testing.assert_allclose(sloped, plain, rtol=0, atol=1e-9)


def test_no_cliff_where_edges_are_many(rng: np.random.Generator) -> None:
    """14,000 positions of 12 states have more than two million edges."""
    graph, _ = chain(rng.standard_normal((14_000, 12)), rng.standard_normal((12, 12)))
    solution = graph.solve(max_time=LIMIT)
    assert solution.status.tolist() == [Status.SOLVED]
    assert solution.error_bound[0] < 1e-5  # a root of the rounding of scores that add up to 1e4
    best = graph.solve_map(max_time=LIMIT)
    exact = graph.solve_map(exact=True, max_time=LIMIT)
    assert exact.proved.all()
    np.testing.assert_allclose(best.objective, exact.score, rtol=1e-12)
    rounded = solution.decode(max_time=LIMIT)
    np.testing.assert_allclose(rounded.score, exact.score, rtol=1e-8)


@pytest.mark.parametrize(("length", "n"), [(100_000, 5), (600_000, 2)])
def test_no_cliff_where_positions_are_many(length: int, n: int, rng: np.random.Generator) -> None:
    """With more than two million edges, a chain ended at its time limit without an answer."""
    graph, _ = chain(rng.standard_normal((length, n)), rng.standard_normal((n, n)))
    solution = graph.solve(max_time=LIMIT)
    assert solution.status.tolist() == [Status.SOLVED]
    assert solution.error_bound[0] < 1e-4  # a root of the rounding of scores that add up to 1e6


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0, 10.0])
def test_no_cliff_where_paths_are_long(scale: float, rng: np.random.Generator) -> None:
    """Where many states are unused, a path of small gains over thousands of positions wins all."""
    length, n = 20_000, 50
    graph, _ = chain(scale * rng.standard_normal((length, n)), scale * rng.standard_normal((n, n)))
    solution = graph.solve(max_time=LIMIT)
    assert solution.status.tolist() == [Status.SOLVED]
    assert solution.error_bound[0] < 1e-4  # a root of the rounding of scores that add up to 1e6


def test_no_cliff_among_other_factors(rng: np.random.Generator) -> None:
    """An active set of such a chain takes thousands of structures, in thousands of steps."""
    length, n, most = 5_000, 20, 20
    graph, factor = chain(rng.standard_normal((length, n)), rng.standard_normal((n, n)))
    first = factor.variables[:, 0]
    graph.add(Budget(first, most))
    solution = graph.solve(max_time=LIMIT)
    assert solution.ok
    assert first.value.sum() == pytest.approx(most, abs=1e-5)  # converged to tol
    assert solution.error_bound[0] < 1e-4


def test_scores_change_and_starts_are_warm(rng: np.random.Generator) -> None:
    """What a long chain's solution keeps serves again."""
    scores, steps = rng.standard_normal((50_000, 4)), rng.standard_normal((4, 4))
    graph, factor = chain(scores, steps)
    before = graph.solve(max_time=LIMIT)
    moved = scores + 1e-3 * rng.standard_normal(scores.shape)
    graph.rescore(factor.variables, moved)
    warm = graph.solve(warm_start=before, max_time=LIMIT)
    cold = graph.solve(max_time=LIMIT)
    assert warm.ok and cold.ok
    np.testing.assert_allclose(warm.values, cold.values, rtol=0, atol=1e-10)


def test_structures_of_a_long_chain_are_listed_or_refused(rng: np.random.Generator) -> None:
    """Their number grows with the length, as does the size of each."""
    graph, factor = chain(rng.standard_normal((1_000, 4)), rng.standard_normal((4, 4)))
    values = graph.solve(max_time=LIMIT).values
    listed = graph.structures(factor)[0]
    mean = np.tensordot(listed.probabilities, listed.variables, axes=1)
    np.testing.assert_allclose(mean.ravel(), values, rtol=0, atol=1e-9)
    graph, factor = chain(rng.standard_normal((50_000, 4)), rng.standard_normal((4, 4)))
    assert graph.solve(max_time=LIMIT).ok
    with pytest.raises(ValueError, match="a Sequence of 50000 positions is a mixture of about"):
        graph.structures(factor)
