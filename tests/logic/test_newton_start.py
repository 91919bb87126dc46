"""Components whose factors bound counts start from their multipliers, and end there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import judges
from lpsmap import AtMostOne, Budget, FactorGraph, Or, Pair, Xor
from lpsmap_core import Status
from lpsmap_dynamic import counts_of


def matching(scores: np.ndarray) -> tuple[FactorGraph, object]:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    return graph, u


@pytest.mark.parametrize("scale", [1e-8, 0.01, 0.1, 1.0, 10.0, 30.0])
def test_matchings_are_solved_in_one_iteration(scale: float) -> None:
    scores = scale * np.random.default_rng(0).standard_normal((12, 8, 11))
    graph, _ = matching(scores)
    solution = graph.solve()
    assert (solution.iterations == 1).all()
    assert (solution.status == Status.SOLVED).all()
    assert solution.gap.max() <= 1e-11 * max(1.0, scale)
    graph, _ = matching(np.swapaxes(scores, 1, 2)[:, :8, :8])  # square ones, full both ways
    assert (graph.solve().status == Status.SOLVED).all()


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_large_scores_take_one_iteration(scale: float) -> None:
    graph, u = matching(scale * np.random.default_rng(0).standard_normal((3, 30, 40)))
    solution = graph.solve()
    assert (solution.status == Status.SOLVED).all()
    assert (solution.iterations == 1).all()
    assert ((u.value == 0.0) | (u.value == 1.0)).mean() > 0.9


@pytest.mark.parametrize("columns", [200, 150])
def test_many_factors_take_one_iteration(columns: int) -> None:
    for scale in (0.01, 1.0, 100.0, 1e4):
        graph, _ = matching(scale * np.random.default_rng(0).standard_normal((150, columns)))
        solution = graph.solve()
        assert (solution.status == Status.SOLVED).all()
        assert solution.iterations.tolist() == [1]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_large_linear_programs_take_one_iteration(scale: float) -> None:
    scores = np.random.default_rng(0).standard_normal((60, 80))
    graph, u = matching(scale * scores)
    solution = graph.solve_map()
    assert (solution.status == Status.SOLVED).all()
    assert solution.iterations.tolist() == [1]
    np.testing.assert_allclose(u.value, np.round(u.value), rtol=0, atol=1e-15)
    row, column = linear_sum_assignment(scores, maximize=True)
    best = scale * scores[row, column].sum()
    np.testing.assert_allclose(solution.objective, best, rtol=1e-12)


@pytest.mark.parametrize("most", [1, 3, 30])
def test_large_linear_programs_of_many_optima_end_at_one(most: int) -> None:
    scores = np.random.default_rng(0).integers(-most, most + 1, (80, 90)).astype(float)
    graph, u = matching(scores)
    solution = graph.solve_map()
    assert solution.iterations.tolist() == [1]
    np.testing.assert_allclose(u.value, np.round(u.value), rtol=0, atol=1e-6)  # the default tol
    row, column = linear_sum_assignment(scores, maximize=True)
    best = scores[row, column].sum()
    np.testing.assert_allclose(solution.objective, best, rtol=1e-7)
    found = graph.solve_map(exact=True)
    assert found.total == best
    assert found.n_nodes.tolist() == [0]


@pytest.mark.parametrize("score", [0.0, 1e-300, 1e300])
def test_large_linear_programs_of_extreme_scores(score: float) -> None:
    scores = np.zeros((60, 80))
    scores[3, 5] = score
    graph, u = matching(scores)
    with np.errstate(all="raise", under="ignore"):
        solution = graph.solve_map()
    assert solution.ok
    assert u.value[3, 5] > 0.99 or score == 0.0
    np.testing.assert_allclose(u.value.sum(axis=1), 1.0, atol=8e-5)  # 80 times the default tol


def random_counts(
    rng: np.random.Generator, n: int
) -> tuple[FactorGraph, object, list[judges.EnumeratedFactor]]:
    """Return a graph of factors that bound counts, and what they are to a judge."""
    graph = FactorGraph()
    u = graph.variable((n,))
    enumerated = []
    for _ in range(int(rng.integers(2, 6))):
        k = int(rng.integers(1, 5))
        chosen = rng.choice(n, size=k, replace=bool(rng.random() < 0.2))
        negated = rng.random(k) < 0.3
        slots = u[chosen] ^ negated
        most = int(rng.integers(1, k + 1))
        exact = bool(rng.random() < 0.3)
        declare, vertices = [
            (Xor, judges.xor(k)),
            (AtMostOne, judges.at_most_one(k)),
            (Or, judges.at_least_one(k)),
            (lambda v, m=most, e=exact: Budget(v, m, e), judges.budget(k, most, exact=exact)),
        ][int(rng.integers(4))]
        graph.add(declare(slots))
        enumerated.append(
            judges.EnumeratedFactor(chosen, negated, *vertices, np.zeros(vertices[1].shape[1]))
        )
    return graph, u, enumerated


@pytest.mark.parametrize("seed", range(60))
def test_counts_agree_with_the_judge(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph, u, factors = random_counts(rng, 7)
    scores = 10.0 ** rng.uniform(-3, 1) * rng.standard_normal(7)
    graph.rescore(u, scores)
    if not judges.is_feasible(7, factors):
        with pytest.warns(match="not solved"):
            assert Status.INFEASIBLE in graph.solve().status
        return
    solution = graph.solve()
    assert (solution.status == Status.SOLVED).all()
    expected, _, _ = judges.solve_graph(scores, factors)
    np.testing.assert_allclose(u.value, expected, rtol=0, atol=1e-8)  # what the judge is good for


def test_forbidden_variables() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((5, 6))
    scores[rng.random((5, 6)) < 0.3] = -np.inf
    graph, u = matching(scores)
    assert (graph.solve().status == Status.SOLVED).all()
    found = u.value
    graph.rescore(u, np.clip(scores, -1e9, 1e9))
    assert (graph.solve().status == Status.SOLVED).all()
    np.testing.assert_allclose(u.value, found, rtol=0, atol=1e-12)
    assert (found[np.isneginf(scores)] == 0.0).all()


def test_other_components_start_as_they_do() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal((2, 4)))
    graph.add(Xor(u))
    graph.add(Budget(u[:, :3], 1))
    graph.add(Pair(u[0, 0], u[0, 1], [0.5]))
    counts = counts_of(graph.solve().layout.part)
    assert counts.covered.tolist() == [False, True]


def test_many_factors_of_few_variables_start_from_nothing() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal(1_001))
    graph.add(AtMostOne(u[np.arange(1_000)[:, None] + np.arange(2)]))
    solution = graph.solve()
    assert solution.iterations[0] > 1
    assert solution.ok


def test_an_earlier_solution_changes_nothing() -> None:
    graph, u = matching(np.random.default_rng(0).standard_normal((5, 6)))
    first = graph.solve()
    value = u.value
    again = graph.solve(warm_start=first)
    assert (again.status == Status.SOLVED).all()
    assert again.iterations.tolist() == [1]
    np.testing.assert_allclose(u.value, value, rtol=0, atol=1e-12)


def test_without_adapting_the_loop_is_the_papers() -> None:
    graph, _ = matching(np.random.default_rng(0).standard_normal((5, 6)))
    assert (graph.solve(adapt=False, step_size=0.5).iterations > 1).all()
