"""`Knapsack` with variables that a mask forces on, whatever they cost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import FactorGraph, Knapsack
from lpsmap_core import Status, Variables

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

RATES = [1.0, 1e3, 1e5, 1e9, 1e12]
"""Costs of forced variables, in units of the others' costs."""


def forced(rate: float, seed: int) -> tuple[FloatArray, FloatArray, float, BoolArray]:
    """Draw scores, costs, a budget that the forced variables leave a part of, and which they are.

    Costs of forced variables are powers of 2, so that their sum is exact.
    """
    rng = np.random.default_rng(seed)
    must = np.array([True, True, False, False, False, False])
    power = 2.0 ** np.round(np.log2(rate))
    costs = np.where(must, power, rng.integers(1, 9, size=6) / 8.0)
    left = 0.6 * costs[~must].sum()
    return rng.normal(size=6) + 0.5, costs, float(2.0 * power + left), must


def declared(
    scores: FloatArray, costs: FloatArray, budget: float, must: BoolArray
) -> tuple[FactorGraph, Variables]:
    """Return a graph in which masks force variables on: they forbid the negated ones."""
    graph = FactorGraph()
    u = graph.variable_from(np.where(must, -np.inf, scores))
    graph.add(Knapsack(Variables(graph, u.index, must), costs, budget))
    return graph, u


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("seed", range(4))
def test_forced_variables_spend_their_costs_first(rate: float, seed: int) -> None:
    """Those of high cost were turned off for others of low cost, against their mask."""
    scores, costs, budget, must = forced(rate, seed)
    graph, u = declared(scores, costs, budget, must)
    rest, v = declared(scores[~must], costs[~must], budget - costs[must].sum(), must[~must])
    for verb in (FactorGraph.solve, FactorGraph.solve_map):
        ours, expected = verb(graph), verb(rest)
        assert ours.status[0] is expected.status[0] is Status.SOLVED
        assert (u.value[must] == 0.0).all()
        np.testing.assert_allclose(u.value[~must], v.value, rtol=0.0, atol=1e-12)
    exact = graph.solve_map(exact=True, solver="lpsmap")
    best = best_of(scores[~must], costs[~must], budget - costs[must].sum())
    assert exact.proved.all()
    np.testing.assert_allclose(exact.score, best, atol=1e-9)


@pytest.mark.parametrize("unit", [10.0, 1e4, 1e6])
def test_a_budget_that_is_spent_exactly_is_no_contradiction(unit: float) -> None:
    """The search proved 1.001: it took two variables that just fit for a contradiction."""
    graph = FactorGraph()
    u = graph.variable_from(np.array([1.0, 0.9, 1e-3]))
    graph.add(Knapsack(u, [unit + 1.0, unit, 2.0], 2.0 * unit + 1.0))
    found = graph.solve_map(exact=True, solver="lpsmap")
    assert found.proved.all()
    np.testing.assert_allclose(found.score, 1.9, rtol=1e-12)


@pytest.mark.parametrize("unit", [1e3, 1e8, 1e10, 1e13])
def test_one_more_than_the_budget_is_too_much(unit: float) -> None:
    """Up to a billionth was allowed of the last cost, which integers of this size can tell."""
    graph = FactorGraph()
    graph.add(Knapsack(graph.variable_from(np.array([1.0, 1.0])), [unit, unit], 2.0 * unit - 1.0))
    found = graph.solve_map(exact=True, solver="lpsmap")
    assert found.proved.all()
    assert found.score == 1.0


def test_rounding_of_costs_is_no_violation() -> None:
    """.1 + .2 is more than .3."""
    graph = FactorGraph()
    graph.add(Knapsack(graph.variable_from(np.ones(2)), [0.1, 0.2], 0.3))
    assert graph.solve_map(exact=True, solver="lpsmap").score == 2.0


def best_of(scores: FloatArray, costs: FloatArray, budget: float) -> float:
    """Return the best score of all zeros and ones within the budget."""
    tried = judges.binary_vectors(len(scores))
    return float((tried @ scores)[tried @ costs <= budget].max())
