"""Statuses and warnings: of each component, whatever becomes of the others."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import AtMostOne, Budget, FactorGraph, Pair, Status, Xor
from lpsmap_core import ConvergenceWarning
from matchings import matching
from random_graphs import Polytope
from warned import details_of

FloatArray = npt.NDArray[np.float64]

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "when-not-solved.md"


def test_the_page_on_failures_has_every_status() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [status.name for status in Status]


def batch_of(scores: FloatArray, weights: FloatArray, rows: Any) -> tuple[FactorGraph, Any, Any]:
    """Return a graph of matchings of `rows` rows, and a pair between their first two entries."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    mask = np.arange(5)[:, None] < rows[:, None, None]
    graph.add(Xor(u[mask[..., 0]]))
    graph.add(AtMostOne(u, axis=-2, mask=np.broadcast_to(mask, (64, 5, 7))))
    pairs = graph.add(Pair(u[:, 0, 0], u[:, 1, 1], weights))
    return graph, u, pairs


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["variable", "additional"])
def test_a_non_finite_instance_leaves_the_others_untouched(wrong: float, where: str) -> None:
    rng = np.random.default_rng(3)
    scores, weights = rng.normal(size=(64, 5, 7)), rng.normal(size=64)
    rows = rng.integers(2, 6, size=64)
    graph, u, pairs = batch_of(scores, weights, rows)
    good = graph.solve()
    values, both = u.value, graph.additionals_of(pairs)
    d = rng.normal(size=scores.size)
    gradient, extra = good.vjp(d)
    scores, weights = scores.copy(), weights.copy()
    if where == "variable":
        scores[17, 0, 3] = wrong
    else:
        weights[17] = wrong
    graph, u, pairs = batch_of(scores, weights, rows)
    with pytest.warns(ConvergenceWarning, match="NaN or \\+inf") as caught:
        solution = graph.solve()
    assert len(caught) == 1
    component = solution.component_of(u[17, 0, 3]).item()
    assert solution.failed.tolist() == [component]
    assert f"Component {component}: NON_FINITE" in details_of(caught[0])
    assert solution.status[component] is Status.NON_FINITE
    others = np.arange(64) != 17
    np.testing.assert_array_equal(u.value[others], values[others])
    np.testing.assert_array_equal(graph.additionals_of(pairs)[others], both[others])
    assert np.isnan(u.value[17][: rows[17]]).all()
    gradient2, extra2 = solution.vjp(d)
    np.testing.assert_array_equal(
        gradient2.reshape(64, -1)[others], gradient.reshape(64, -1)[others]
    )
    np.testing.assert_array_equal(extra2[2][others], extra[2][others])
    assert np.isnan(gradient2.reshape(64, 5, 7)[17, : rows[17]]).all()
    assert np.isnan(extra2[2][17]).all() and np.isnan(graph.additionals_of(pairs)[17]).all()


def test_an_infeasible_instance_leaves_the_others_untouched() -> None:
    rng = np.random.default_rng(4)
    scores, weights = rng.normal(size=(64, 5, 7)), rng.normal(size=64)
    rows = rng.integers(2, 6, size=64)
    graph, u, _ = batch_of(scores, weights, rows)
    good = graph.solve(tol=1e-9)
    values, d = u.value, rng.normal(size=scores.size)
    gradient = good.vjp(d)[0].reshape(64, -1)
    masked = scores.copy()
    masked[40, 1] = -np.inf
    graph, u, _ = batch_of(masked, weights, rows)
    with pytest.warns(ConvergenceWarning, match="contradict") as caught:
        solution = graph.solve(tol=1e-9)
    assert len(caught) == 1
    assert solution.failed.tolist() == [solution.component_of(u[40, 0, 0]).item()]
    assert solution.status[solution.failed[0]] is Status.INFEASIBLE
    others = np.arange(64) != 40
    np.testing.assert_allclose(u.value[others], values[others], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        solution.vjp(d)[0].reshape(64, -1)[others], gradient[others], rtol=0, atol=1e-12
    )


def test_a_fully_masked_row_alone_is_infeasible() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.3, 0.1], [-np.inf, -np.inf]]))
    graph.add(Xor(u))
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE: ") as caught:
        solution = graph.solve()
    assert "Component 1: INFEASIBLE" in details_of(caught[0])
    assert solution.status.tolist() == [Status.SOLVED, Status.INFEASIBLE]
    np.testing.assert_allclose(u.value[0], [0.6, 0.4])
    np.testing.assert_allclose(solution.vjp(np.array([1.0, 0, 1, 1]))[0], [0.5, -0.5, 0, 0])


def test_nothing_but_non_finite_scores_is_an_error() -> None:
    graph, u = matching(np.array([[0.0, np.nan], [0.0, 0.0]]))
    with pytest.raises(ValueError, match=r"block 0 holds nan at \[0, 1\].*-inf to forbid"):
        graph.solve()
    graph = FactorGraph()
    u = graph.variable((2,))
    graph.add(Pair(u[0], u[1], np.inf))
    with pytest.raises(ValueError, match="additionals: .*NaN or \\+inf"):
        graph.solve()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_non_finite_score_of_a_variable_in_no_factor_is_reported(wrong: float) -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.3, 0.1, wrong, 0.5]))
    graph.add(Xor(u[:2]))
    with pytest.warns(ConvergenceWarning, match="in no factor") as caught:
        solution = graph.solve()
    assert f"block 0 holds {wrong} at [2]" in details_of(caught[0])
    assert solution.ok
    np.testing.assert_allclose(u.value, [0.6, 0.4, np.nan, 0.5])


def test_outer_iteration_limit() -> None:
    graph, u = matching(np.random.default_rng(5).normal(size=(12, 14)))
    with pytest.warns(ConvergenceWarning, match="raise max_iter") as caught:
        solution = graph.solve(max_iter=2, adapt=False)
    assert len(caught) == 1
    assert "Residuals up to" in details_of(caught[0])
    assert solution.status.tolist() == [Status.ITERATION_LIMIT]
    assert solution.iterations.tolist() == [2]
    assert solution.primal_residual[0] > 1e-6 or solution.dual_residual[0] > 1e-6
    assert not solution.ok
    assert np.isfinite(solution.vjp(np.ones(u.size))[0]).all()


def test_inner_iteration_limit() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((2, 6)))
    graph.add(Polytope(u, np.eye(6)))
    with pytest.warns(ConvergenceWarning, match="raise max_inner_iter"):
        solution = graph.solve(max_inner_iter=3)
    assert solution.status.tolist() == [Status.INNER_ITERATION_LIMIT] * 2
    assert graph.solve(max_inner_iter=50).ok


def test_contradicting_factors_do_not_pass_for_solved() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.2, 0.4]))
    graph.add(Xor(u))
    graph.add(Budget(u, 2, force_budget=True))
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve(max_iter=200)
    assert solution.status[0] in (Status.INFEASIBLE, Status.ITERATION_LIMIT)


def test_many_failures_are_one_warning() -> None:
    rng = np.random.default_rng(6)
    scores = rng.normal(size=(30, 4, 5))
    scores[3, 0, 0] = np.nan
    scores[5, 2] = -np.inf
    graph, _ = matching(scores)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = graph.solve(max_iter=1, adapt=False)
    assert len(caught) == 1
    (warning,) = (one.message for one in caught)
    assert isinstance(warning, ConvergenceWarning)
    for words in ("raise max_iter", "NaN or +inf"):
        assert words in str(warning)
    assert warning.details.startswith(f"{len(solution.failed)} of 30 components were not solved.")
    for words in ("Component 3:", "..."):
        assert words in warning.details
    assert "SOLVED" not in repr(solution) or "ITERATION_LIMIT" in repr(solution)


def test_no_warning_without_a_failure() -> None:
    graph, _ = matching(np.random.default_rng(7).normal(size=(3, 4, 5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert graph.solve().ok
