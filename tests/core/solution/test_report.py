"""Warnings of solves: the words stay, so that Python's filters know them again."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from lpsmap import AtMostOne, Budget, ConvergenceWarning, FactorGraph, Xor
from warned import details_of


def step(seed: int) -> None:
    """Solve what is cut off and what is not finite, of a number and at a place that change."""
    rng = np.random.default_rng(seed)
    n = 6 + seed
    scores = rng.normal(size=(n, 12, 14))
    scores[seed, 0, seed] = np.nan
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    graph.solve(max_iter=2, adapt=False)


def step_of_search(seed: int) -> None:
    """Search for what contradicts itself."""
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(seed).normal(size=(2 + seed, 3)))
    graph.add(Xor(u))
    graph.add(Budget(u[: 1 + seed], 0))
    graph.solve_map(exact=True)


@pytest.mark.parametrize("verb", [step, step_of_search])
@pytest.mark.parametrize(("action", "expected"), [("default", 1), ("always", 3)])
def test_a_loop_warns_once_for_each_line(
    verb: Callable[[int], None], action: Literal["default", "always"], expected: int
) -> None:
    """As Python's filters have it, whatever numbers differ from step to step."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        for seed in range(3):
            verb(seed)
    own = [warning for warning in caught if issubclass(warning.category, ConvergenceWarning)]
    assert len(own) == expected


def test_lines_of_the_user_are_told_apart() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from([[np.nan, 0.0], [0.0, 1.0]])))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            graph.solve()
        graph.solve()
    assert [warning.filename for warning in caught] == [__file__] * 2
    assert len({warning.lineno for warning in caught}) == 2


def test_numbers_are_in_the_details_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "lpsmap"),
        pytest.warns(ConvergenceWarning, match="ITERATION_LIMIT: .*NON_FINITE: ") as caught,
    ):
        step(1)
    details = details_of(caught[0])
    assert "7 of 7 components" in details
    assert "Component 1: NON_FINITE" in details
    assert details in caplog.text
