"""Monotone alignments against enumeration, a plain recursion and the judge."""

from __future__ import annotations

import functools

import numpy as np
import pytest

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
from lpsmap_factors_struct import Alignment

SIZES = [(1, 1), (1, 4), (4, 1), (2, 3), (3, 3), (5, 3), (4, 5)]
MOVES = [(0, 1), (1, 0), (1, 1)]


@functools.cache
def paths(m, n):
    """All paths to cell (m - 1, n - 1), as tuples of cells."""
    if (m, n) == (1, 1):
        return (((0, 0),),)
    before = [(m - i, n - j) for i, j in MOVES if m > i and n > j]
    return tuple((*path, (m - 1, n - 1)) for end in before for path in paths(*end))


def case(m, n):
    m_all = np.zeros((len(paths(m, n)), m, n))
    for one, path in zip(m_all, paths(m, n), strict=True):
        one[tuple(np.transpose(path))] = 1.0
    return Case(lambda u, eta_v: Alignment(u), (m, n), m_all)


def best_score(scores):
    """By a recursion from the end."""

    @functools.cache
    def rest(i, j):
        after = [rest(i + a, j + b) for a, b in MOVES if i + a < len(scores) and j + b < n]
        return scores[i, j] + max(after, default=0.0)

    n = scores.shape[1]
    return rest(0, 0)


@pytest.mark.parametrize(("m", "n"), SIZES)
def test_best_alignment_is_the_best_of_all(draws, m, n):
    check_oracle(case(m, n), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [*SIZES, (6, 4), (5, 5)])
def test_best_alignment_is_the_best_of_all_in_many_draws(m, n):
    check_oracle(case(m, n), SLOW, seed=1)


@pytest.mark.parametrize(("m", "n"), [(1, 3), (3, 3), (2, 4), (4, 4)])
def test_sparsemap_and_gradients(draws, m, n):
    check_sparsemap(case(m, n), draws // 40)
    check_gradients(case(m, n), draws // 10)
    check_probabilities(case(m, n), draws // 10)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(3, 3), (4, 3)])
def test_sparsemap_and_gradients_in_many_draws(m, n):
    check_sparsemap(case(m, n), SLOW, seed=1)
    check_gradients(case(m, n), SLOW, seed=1)
    check_probabilities(case(m, n), 2 * SLOW, seed=1)


@pytest.mark.parametrize(("m", "n"), [(20, 20), (10, 35)])
def test_larger_alignments_agree_with_a_plain_recursion(rng, graph, m, n):
    scores = rng.standard_normal((10, m, n))
    factor = Alignment(graph.variable(scores.shape))
    found, _ = run_oracle(factor, scores.reshape(-1), np.empty(0))
    for one, score in zip(found, scores, strict=True):
        assert one @ score.reshape(-1) == pytest.approx(best_score(score), abs=1e-11)
        cells = [tuple(cell) for cell in np.argwhere(one.reshape(m, n))]
        assert cells[0] == (0, 0)
        assert cells[-1] == (m - 1, n - 1)
        for before, after in zip(cells[:-1], cells[1:], strict=True):
            assert tuple(np.subtract(after, before)) in MOVES


def test_forced_cells_leave_the_digits_of_the_others(rng, graph):
    """Many of them, on long paths, where one sum of all would have lost eleven digits."""
    n = 15
    scores = rng.standard_normal((20, n, n))
    diagonal = np.arange(0, n, 2)
    forced = scores.copy()
    forced[:, diagonal, diagonal] = 1e11
    factor = Alignment(graph.variable(scores.shape))
    found, _ = run_oracle(factor, forced.reshape(-1), np.empty(0))
    for one, score in zip(found, scores, strict=True):
        one = one.reshape(n, n)
        assert one[diagonal, diagonal].all()
        for k in diagonal[:-1]:  # what is between two forced cells is the best there
            block = (slice(k, k + 3), slice(k, k + 3))
            assert (one * score)[block].sum() == pytest.approx(best_score(score[block]), abs=1e-12)


def test_ragged_batch_is_its_alignments(rng):
    sizes = np.array([[3, 5], [5, 2], [1, 1], [0, 3], [4, 0], [0, 0]])
    scores = rng.standard_normal((len(sizes), 5, 5))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    factor = graph.add(Alignment(u, lengths=sizes))
    assert graph.solve().ok
    for b, (m, n) in enumerate(sizes):
        alone = FactorGraph()
        one = alone.variable_from(scores[b, :m, :n])
        alone.add(Alignment(one))
        alone.solve()
        np.testing.assert_allclose(u.value[b, :m, :n], one.value, rtol=0, atol=1e-10)
        row = row_view(factor, b)
        path = row.solve_map(scores[b, :m, :n], np.empty(0))
        assert row.vertex(path)[0].shape == (m, n)
        assert bool(path) == bool(m and n)


def test_alignments_are_decoded_to_pairs(graph):
    factor = row_view(Alignment(graph.variable((3, 4))), 0)
    for path in paths(3, 4):
        assert factor.decode(*factor.vertex(path)) == {"pairs": [list(cell) for cell in path]}


@pytest.mark.filterwarnings("ignore:.*were not solved:UserWarning")
def test_a_row_of_forbidden_cells_has_no_path(rng):
    scores = rng.standard_normal((3, 4))
    scores[1] = -np.inf
    graph = FactorGraph()
    graph.add(Alignment(graph.variable_from(scores)))
    assert graph.solve().status[0] is Status.INFEASIBLE


def test_wrong_arguments_are_named(graph):
    with pytest.raises(ValueError, match=r"Alignment: variables has shape \(4,\); expected at"):
        Alignment(graph.variable(4))
    with pytest.raises(ValueError, match=r"Alignment: lengths\[0\] is 4; expected 0 to 3"):
        Alignment(graph.variable((1, 5, 3)), lengths=[[5, 4]])
    with pytest.raises(ValueError, match=r"Alignment: lengths has shape \(2, 3\)"):
        Alignment(graph.variable((2, 5, 3)), lengths=np.ones((2, 3), dtype=int))
