"""The rule for step sizes: the first one follows the scores, the later ones the residuals."""

from __future__ import annotations

import numpy as np
import pytest

from lpsmap_core.engine.options import Options
from lpsmap_core.engine.step_size import (
    FIRST_STEP_SIZE,
    MAX_STEP_SIZE_RATIO,
    balanced_step_size,
    first_step_sizes,
)

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


@pytest.mark.parametrize(
    ("primal", "dual", "expected"),
    [(1.0, 0.05, 2.0), (0.05, 1.0, 0.5), (1.0, 0.5, 1.0), (0.0, 0.0, 1.0), (np.nan, 1.0, 1.0)],
)
def test_a_step_size_follows_the_larger_residual(
    primal: float, dual: float, expected: float
) -> None:
    assert balanced_step_size(1.0, 1.0, primal, dual, 10.0) == expected


def test_a_step_size_stays_near_its_first_value() -> None:
    assert (
        balanced_step_size(0.9 * MAX_STEP_SIZE_RATIO, 1.0, 1.0, 0.0, 10.0)
        == 0.9 * MAX_STEP_SIZE_RATIO
    )
    assert (
        balanced_step_size(1.1 / MAX_STEP_SIZE_RATIO, 1.0, 0.0, 1.0, 10.0)
        == 1.1 / MAX_STEP_SIZE_RATIO
    )
