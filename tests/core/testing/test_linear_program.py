"""The kit's small linear programs compared with HiGHS, and constraints that bound counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from lpsmap import AtMostOne, Budget, Factor, FactorGraph, Knapsack, OrOut, Pair, Xor
from lpsmap_core.model.linear_constraints import CountBounds, LinearConstraints
from lpsmap_core.testing.linear_program import best_point
from lpsmap_dynamic import counts_of
from sound_types import Closed, OneOf


@pytest.mark.parametrize("seed", range(40))
def test_best_points_are_those_of_highs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 9)), int(rng.integers(0, 7))
    matrix = rng.integers(-2, 3, size=(m, n)) * (rng.random((m, n)) < 0.6)
    center = matrix @ (rng.random(n) < 0.5) + rng.integers(0, 2, size=m)
    low = np.where(rng.random(m) < 0.4, -np.inf, center - rng.integers(0, 2, size=m))
    high = np.where(rng.random(m) < 0.4, np.inf, center)
    row, column = np.nonzero(matrix)
    scores = np.where(rng.random(n) < 0.3, 0.0, rng.standard_normal(n))
    known = LinearConstraints(row, column, matrix[row, column], low, high)
    rows = [LinearConstraint(matrix, low, high)] if m else []
    expected = milp(-scores, constraints=rows, bounds=(0, 1))
    found = best_point(known, scores)
    assert (found is None) == (not expected.success)
    if found is not None:
        assert scores @ found == pytest.approx(-expected.fun, abs=1e-9)
        sums = matrix @ found
        assert ((sums >= low - 1e-9) & (sums <= high + 1e-9)).all()


def test_one_number_bounds_all_rows() -> None:
    known = LinearConstraints([0, 0, 1, 1], [0, 1, 1, 2], [1.0, -1.0, 1.0, -1.0], -np.inf, 0.0)
    np.testing.assert_array_equal(known.low, [-np.inf, -np.inf])
    np.testing.assert_array_equal(known.high, [0.0, 0.0])
    np.testing.assert_array_equal(best_point(known, np.array([1.0, 1.0, -3.0])), [0.0, 0.0, 0.0])
    assert LinearConstraints([], [], 1.0, 0.0, 1.0).low.shape == (0,)


def covered(make: object, n: int = 3) -> bool:
    """Return whether a component of a created factor and an `Xor` has only bounds on counts."""
    graph = FactorGraph()
    u = graph.variable((2, n))
    graph.add(make(u))  # type: ignore[operator]
    graph.add(Xor(u, axis=0))
    (found,) = set(counts_of(graph._laid_out().part).covered.tolist())
    return bool(found)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Xor, True),
        (AtMostOne, True),
        (Closed, True),
        (lambda u: Budget(u, [1, 2]), True),
        (lambda u: Knapsack(u, 1.0, 1.5), False),
        (OneOf, False),
        (OrOut, False),
        (lambda u: Pair(u[0], u[1], np.zeros(3)), False),
    ],
)
def test_counts_are_single_sums_of_all_slots(make: object, expected: bool) -> None:
    assert covered(make) is expected


def test_a_component_of_counts_beside_another() -> None:
    graph = FactorGraph()
    u, x = graph.variable((2, 3)), graph.variable((2, 3))
    graph.add(Xor(u))
    graph.add(AtMostOne(x))
    graph.add(Budget(u, 1, axis=0))
    graph.add(OrOut(x, axis=0))
    counts = counts_of(graph._laid_out().part)
    assert sorted(counts.covered.tolist()) == [False, True]
    assert (counts.low <= counts.high).all()


def test_bounds_on_counts_have_rows_on_first_access() -> None:
    known = Budget(FactorGraph().variable((2, 3)), [1, 2], lengths=[2, 3]).linear_constraints()
    assert isinstance(known, CountBounds)
    assert "row" not in vars(known)
    assert known.row.tolist() == [0, 0, 1, 1, 1]
    assert known.column.tolist() == [0, 1, 2, 3, 4]
    assert known.high.tolist() == [1.0, 2.0]
    assert not hasattr(known, "rows")


def test_types_have_no_constraints_by_default() -> None:
    factor: Factor = OneOf(FactorGraph().variable(3))
    assert factor.linear_constraints() is None
