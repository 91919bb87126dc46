"""Closed forms against the generic active set on the same oracles, with every negation."""

from __future__ import annotations

import numpy as np
import pytest

import judges
from lpsmap_core import Factor, FactorGraph, Variables
from lpsmap_core.api import row_view
from lpsmap_factors_logic import (
    AndOut,
    AtMostOne,
    Budget,
    Imply,
    Knapsack,
    Nand,
    Or,
    OrOut,
    Pair,
    Xor,
    XorOut,
)

COSTS = np.array([0.0, 1.0, 2.5, 0.5])


def without_closed_form(factor_type):
    """Return a type that has a factor type's oracle, and nothing else of it."""
    overrides = dict(
        projection_kernel=None,
        jvp_kernel=None,
        solve_sparsemap=classmethod(Factor.solve_sparsemap.__func__),
        jvp=classmethod(Factor.jvp.__func__),
    )
    return type(f"Generic{factor_type.__name__}", (factor_type,), overrides)


DECLARATIONS = {
    "Xor": (Xor, lambda t, u: t(u)),
    "Or": (Or, lambda t, u: t(u)),
    "AtMostOne": (AtMostOne, lambda t, u: t(u)),
    "Budget-2": (Budget, lambda t, u: t(u, 2)),
    "Budget-exactly-2": (Budget, lambda t, u: t(u, 2, True)),
    "Knapsack": (Knapsack, lambda t, u: t(u, COSTS, 1.7)),
    "Nand": (Nand, lambda t, u: t(u)),
    "Imply": (Imply, lambda t, u: t(u)),
    "XorOut": (XorOut, lambda t, u: t(u)),
    "OrOut": (OrOut, lambda t, u: t(u)),
    "AndOut": (AndOut, lambda t, u: t(u)),
    "Pair-attractive": (Pair, lambda t, u: t(u[..., 0], u[..., 1], 0.6)),
    "Pair-repulsive": (Pair, lambda t, u: t(u[..., 0], u[..., 1], -0.6)),
}

every_declaration = pytest.mark.parametrize(
    "factor_type, declare", DECLARATIONS.values(), ids=DECLARATIONS
)


def arity_of(factor_type):
    return 2 if factor_type is Pair else 4


def solved(scores, negated, factor_type, declare):
    """Solve rows of variables some of whose slots are negated; return solution and values."""
    fg = FactorGraph()
    u = fg.variable_from(scores)
    literals = Variables(fg, u.index, np.broadcast_to(negated, u.shape))
    fg.add(declare(factor_type, literals))
    return fg.solve(), u.value


@every_declaration
def test_override_equals_the_generic_active_set(rng, factor_type, declare):
    k = arity_of(factor_type)
    generic = without_closed_form(factor_type)
    for negated in judges.negations(k):
        scores = rng.normal(size=(6, k)) * rng.choice([0.3, 1.0, 3.0], size=(6, 1))
        d = rng.normal(size=scores.size)
        my_solution, mine = solved(scores, negated, factor_type, declare)
        their_solution, theirs = solved(scores, negated, generic, declare)
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
        my_gradient, my_extra = my_solution.vjp(d)
        their_gradient, their_extra = their_solution.vjp(d)
        np.testing.assert_allclose(my_gradient, their_gradient, rtol=0, atol=1e-9)
        for one, other in zip(my_extra, their_extra, strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=1e-9)


@every_declaration
def test_gradient_of_negated_variables_is_the_difference(rng, factor_type, declare):
    """Regression: the earlier lpsmap had wrong Jacobians of negated slots for three types."""
    k = arity_of(factor_type)
    smooth_ones = 0
    for negated in judges.negations(k):
        scores, d = rng.normal(size=k), rng.normal(size=k)
        solution, _ = solved(scores[None], negated, factor_type, declare)
        direction = rng.normal(size=k)

        def value(x, negated=negated, d=d):
            return solved(x[None], negated, factor_type, declare)[1] @ d

        expected, smooth = judges.directional_derivative(value, scores, direction)
        if smooth:
            smooth_ones += 1
            assert solution.vjp(d)[0] @ direction == pytest.approx(expected.item(), abs=1e-7)
    assert smooth_ones > 0.8 * 2**k


@every_declaration
def test_degrees_above_one(rng, factor_type, declare):
    """Rows and columns at once: overrides and active set meet in the loop's solution."""
    k = arity_of(factor_type)
    scores = rng.normal(size=(k, k))
    values = []
    for each in (factor_type, without_closed_form(factor_type)):
        fg = FactorGraph()
        u = fg.variable_from(scores)
        fg.add(declare(each, u))
        fg.add(Or(u, axis=0))
        fg.solve(tol=1e-11, max_iter=20000)
        values.append(u.value)
    np.testing.assert_allclose(values[0], values[1], rtol=0, atol=1e-9)


def test_matching_is_the_judges(rng):
    scores = rng.normal(size=(3, 4))
    fg = FactorGraph()
    u = fg.variable_from(scores)
    fg.add(Xor(u))
    fg.add(AtMostOne(u, axis=0))
    fg.solve(tol=1e-12, max_iter=20000)
    ids = np.arange(12).reshape(3, 4)
    factors = [(row, [False] * 4, *judges.xor(4), []) for row in ids]
    factors += [(column, [False] * 3, *judges.at_most_one(3), []) for column in ids.T]
    expected = judges.solve_graph(scores.reshape(-1), factors)[0]
    np.testing.assert_allclose(u.value.reshape(-1), expected, rtol=0, atol=1e-9)


def test_pairwise_cycle_is_the_judges(rng):
    scores, w = rng.normal(size=5), rng.normal(size=5)
    fg = FactorGraph()
    u = fg.variable_from(scores)
    fg.add(Pair(u, u[[1, 2, 3, 4, 0]], w))
    fg.solve(tol=1e-12, max_iter=20000)
    factors = [([i, (i + 1) % 5], [False, False], *judges.pair(), [w[i]]) for i in range(5)]
    expected = judges.solve_graph(scores, factors)[0]
    np.testing.assert_allclose(u.value, expected, rtol=0, atol=1e-9)


def test_labels_are_hashable_assignments():
    for factor_type, declare in DECLARATIONS.values():
        k = arity_of(factor_type)
        u = FactorGraph().variable_from(np.zeros((1, k)))
        row = row_view(declare(factor_type, u), 0)
        label = row.solve_map(np.linspace(-1, 1, k), np.ones(1))
        assert isinstance(label, tuple) and len(label) == k
        hash(label)
