"""The rule for step sizes: the first one follows the scores, the later ones the residuals."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap_core import Factor, FactorGraph
from lpsmap_core.engine.options import Options
from lpsmap_core.engine.step_size import (
    FIRST_STEP_SIZE,
    MAX_STEP_SIZE_RATIO,
    balanced_step_size,
    first_step_sizes,
)
from lpsmap_factors_logic import AtMostOne, Budget, Or, OrOut, Pair
from lpsmap_factors_struct import Permutation

FIRST_VARIABLE = np.array([0, 2, 4, 5])
COUPLED = np.zeros(3, dtype=bool)


def first(scores: list[float], direct: np.ndarray = COUPLED, **options: float) -> np.ndarray:
    return first_step_sizes(FIRST_VARIABLE, direct, np.array(scores), Options(**options))


def test_the_first_step_size_follows_the_allowed_scores_of_its_component() -> None:
    found = first([3.0, 4.0, -np.inf, 2.0, 0.0]) / FIRST_STEP_SIZE
    np.testing.assert_allclose(found, np.sqrt([1 + 12.5, 1 + 4.0, 1.0]))
    decided = first([3.0, 4.0, np.inf, 2.0, np.inf]) / FIRST_STEP_SIZE  # on, in a search
    np.testing.assert_allclose(decided, np.sqrt([1 + 12.5, 1 + 4.0, 1.0]))
    np.testing.assert_allclose(first([1e200, 1e200, 0, 0, 0])[0], FIRST_STEP_SIZE * 1e200)


def test_without_the_quadratic_term_it_is_in_proportion() -> None:
    scores = np.array([3.0, 4.0, 1e-3, 0.0, 0.0])
    found, larger = (first(list(c * scores), quadratic=0.0) for c in (1.0, 100.0))
    np.testing.assert_allclose(larger[:2], 100.0 * found[:2])
    assert found[2] == larger[2] == FIRST_STEP_SIZE  # where nothing measures it


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


@pytest.mark.parametrize("scale", [1e-4, 1e-8, 1e-12, 1e-100])
def test_best_structures_of_small_scores_are_those_of_large_ones(scale: float) -> None:
    """An absolute tolerance called scores of 1e-8 converged, and of 1e-12 solved."""
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
