"""The rule for step sizes: the first one follows the scores, the later ones the residuals."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap_core import Factor, FactorGraph
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.step_size import (
    MAX_STEP_SIZE_RATIO,
    balanced_step_size,
    first_step_sizes,
)
from lpsmap_core.layout.layout import build_layout
from lpsmap_factors_logic import AtMostOne, Budget, Or, OrOut, Pair
from lpsmap_factors_struct import Permutation

COUPLED = np.zeros(3, dtype=bool)


def first(
    scores: list[float], direct: np.ndarray = COUPLED, pair: float = 0.0, **options: float
) -> np.ndarray:
    """Return those of three components of 2, 2 and 1 variables; the first has a pair."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Pair(u[0], u[1], scores=pair))
    graph.add(AtMostOne(u[2:4]))
    graph.add(AtMostOne(u[4:]))
    part = build_layout(5, graph.factors).part
    return first_step_sizes(part, direct, np.array(scores), np.array([pair]), Options(**options))


def test_the_first_step_size_follows_the_allowed_scores_of_its_component() -> None:
    found = first([3.0, 4.0, -np.inf, -2.0, 0.0])
    np.testing.assert_allclose(found, 5.0 * np.sqrt([1 + 12.5, 1 + 4.0, 1.0]))
    decided = first([3.0, 4.0, np.inf, -2.0, np.inf])  # on, in a search
    np.testing.assert_allclose(decided, found)
    np.testing.assert_allclose(first([1e200, 1e200, 0, 0, 0])[0], 5e200)
    np.testing.assert_allclose(first([1.0, 0, 0, 0, 0], pair=-50.0)[0], 5.0 * np.hypot(1.0, 5.0))


def test_without_the_quadratic_term_it_is_in_proportion() -> None:
    scores = np.array([3.0, 4.0, 1e-3, 0.0, 0.0])
    found, larger = (first(list(c * scores), quadratic=0.0) for c in (1.0, 100.0))
    np.testing.assert_allclose(larger[:2], 100.0 * found[:2])
    assert found.tolist() == [1.0, 0.25e-3, 0.25]  # the last one where nothing measures it


def test_a_component_of_one_factor_has_none() -> None:
    direct = np.array([True, False, True])
    assert (first([1.0] * 5, direct) > 0.0).tolist() == [False, True, False]
    assert first([1.0] * 5, direct, step_size=2.0).tolist() == [0.0, 2.0, 0.0]


def balanced(primal: float, dual: float, now: float = 1.0, iteration: int = 6) -> float:
    return balanced_step_size(iteration, 1.0, now, 1.0, primal, dual, 100.0)


@pytest.mark.parametrize(
    ("primal", "dual", "expected"),
    [(1.0, 0.05, 2.0), (0.05, 1.0, 0.5), (1.0, 0.5, 1.0), (0.0, 0.0, 1.0), (np.nan, 1.0, 1.0)],
)
def test_a_step_size_follows_the_larger_residual(
    primal: float, dual: float, expected: float
) -> None:
    assert balanced(primal, dual) == expected
    assert balanced(primal, dual, iteration=7) == 1.0  # between adjustments


def test_a_step_size_stays_near_its_first_value() -> None:
    high, low = 0.9 * MAX_STEP_SIZE_RATIO, 1.1 / MAX_STEP_SIZE_RATIO
    assert balanced(1.0, 0.0, now=high) == high
    assert balanced(0.0, 1.0, now=low) == low


def test_late_dual_residuals_are_relative_to_the_scores_while_copies_disagree() -> None:
    early, late = 36, 42
    assert balanced(0.1, 20.0, iteration=early) == 0.5
    assert balanced(0.1, 20.0, iteration=late) == 1.0
    assert balanced(0.1, 0.5, iteration=late) == 2.0
    assert balanced(1e-4, 0.5, iteration=late) == 0.5


def test_means_that_drift_while_all_copies_agree() -> None:
    """They went on at constant speed until iteration 1,860; a drift lasts until a vertex."""
    scores = [-0.280826, 0.628852, 0.184623, 0.511963, 1.528722]
    pairs = [0.659843, -0.413565, -0.215253, -0.386534, -0.345144, -0.244346]
    pairs += [-0.317011, 0.448223, -1.072811, -0.876031]
    graph = FactorGraph()
    u = graph.variable_from(scores)
    first, second = np.triu_indices(5, k=1)
    graph.add(Pair(u[first], u[second], scores=pairs))
    solution = graph.solve_map(engine="compiled")
    assert solution.ok
    assert solution.iterations[0] < 700


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_iterations_without_the_quadratic_term_do_not_depend_on_the_scale() -> None:
    rng = np.random.default_rng(0)
    scores, pairs = rng.standard_normal((12, 12)), rng.standard_normal((12, 11))
    values = []
    for scale in (2.0**-20, 1.0, 2.0**20):
        graph = FactorGraph()
        u = graph.variable_from(scale * scores)
        graph.add(OrOut(u))
        graph.add(Pair(u[:, :-1], u[:, 1:], scale * pairs))
        graph.add(Budget(u, 3, axis=0))
        assert not graph.solve_map(max_iter=100, tol=0.0).ok
        values.append(u.value)
    for other in (values[0], values[2]):  # up to the rounding of the first step size
        np.testing.assert_allclose(other, values[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [2.0**-13, 2.0**-26, 2.0**-40, 2.0**-332])
def test_best_structures_of_small_scores_are_those_of_large_ones(scale: float) -> None:
    """An absolute tolerance called scores of 1e-8 converged, and of 1e-12 solved.

    Scales are powers of two, so that rounding does not decide between the statuses.
    """
    for seed in range(6):
        rng, answers = np.random.default_rng(seed), []
        n = int(rng.integers(4, 10))
        scores, pairs = rng.standard_normal((n, n)), rng.standard_normal((n, n - 1))
        for unit in (0.0625, scale):
            graph = FactorGraph()
            u = graph.variable_from(unit * scores)
            graph.add(AtMostOne(u))
            graph.add(Budget(u, 2, axis=0))
            graph.add(Pair(u[:, :-1], u[:, 1:], unit * pairs))
            solution = graph.solve_map(max_iter=5000)
            answers.append((solution.objective.sum() / unit, solution.status.tolist()))
        (expected, statuses), (found, own) = answers
        assert own == statuses
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("weak", [0.0, 1e-6, 1e-3])
def test_weak_scores_of_variables_beside_strong_pairs(weak: float) -> None:
    """The first step size followed those of variables alone, and LP-MAP ended at its limit."""
    for seed in range(4):
        graph, rng = FactorGraph(), np.random.default_rng(seed)
        u = graph.variable_from(weak * rng.standard_normal(12))
        i, j = np.triu_indices(12, 1)
        some = rng.random(len(i)) < 0.3
        graph.add(Pair(u[i[some]], u[j[some]], scores=rng.standard_normal(some.sum())))
        solution = graph.solve_map(engine="compiled", autodetect_acyclic=False)
        assert solution.ok
        assert solution.iterations.max() < 500


@pytest.mark.parametrize("scale", [10.0, 1000.0])
@pytest.mark.parametrize("kind", [Or, OrOut, Permutation])
def test_duals_that_have_far_to_go(kind: type[Factor], scale: float) -> None:
    """These took over a thousand iterations when small dual residuals shrank the step size."""
    graph, rng = FactorGraph(), np.random.default_rng(0)
    u = graph.variable_from(scale * rng.standard_normal((30, 30)))
    graph.add(kind(u))
    graph.add(Budget(u, 16 if kind is Permutation else 1, axis=0))
    solution = graph.solve()
    assert solution.ok
    assert solution.iterations.max() < 500
