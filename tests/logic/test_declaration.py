"""Declarations of logic factors: which rows they are, which slots they negate, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import judges
from lpsmap_core import FactorGraph
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

NEEDS_A_VARIABLE = [Xor, Or, Nand, Imply, XorOut, OrOut, AndOut]
VERTICES = {
    Xor: judges.xor,
    Or: judges.at_least_one,
    AtMostOne: judges.at_most_one,
    Nand: judges.nand,
    Imply: judges.imply,
    XorOut: judges.xor_out,
    OrOut: judges.or_out,
    AndOut: judges.and_out,
}
every_logic_type = pytest.mark.parametrize("factor_type", VERTICES)


def variables(shape, rng=None):
    scores = np.zeros(shape) if rng is None else rng.normal(size=shape)
    return FactorGraph().variable_from(scores)


def judged(scores, rows):
    """Solve factors over rows of variables, each given as (vertices, flat ids)."""
    factors = [(ids, [False] * len(ids), m, n, []) for (m, n), ids in rows]
    return judges.solve_graph(scores.reshape(-1), factors)[0].reshape(scores.shape)


# -------------------------------------------------------------------- what each type means


@every_logic_type
@pytest.mark.parametrize("arity", range(1, 6))
def test_value_is_the_judges(rng, factor_type, arity):
    vertices = VERTICES[factor_type](arity)
    for scale in (0.3, 1.0, 10.0):
        fg = FactorGraph()
        u = fg.variable_from(scale * rng.normal(size=(8, arity)))
        fg.add(factor_type(u))
        fg.solve()
        for i in range(8):
            scores = np.asarray(fg._scores[0])[i]
            expected = judges.project_polytope(*vertices, scores, [], np.ones(arity))[0]
            np.testing.assert_allclose(u.value[i], expected, rtol=0, atol=1e-13)


@every_logic_type
@pytest.mark.parametrize("arity", [1, 2, 4])
def test_best_assignment_is_the_best_vertex(rng, factor_type, arity):
    """In terms of the slots as the constraint sees them: a negated variable counts as off."""
    factor = factor_type(variables(arity))
    m, _ = VERTICES[factor_type](arity)
    literals = np.where(factor.variables.negated, 1 - m, m)
    for _ in range(30):
        eta = rng.normal(size=arity)
        y = row_view(factor, 0).solve_map(eta, np.empty(0))
        vertex, additionals = factor.vertex(y)
        assert any((vertex == row).all() for row in literals)
        assert vertex @ eta == pytest.approx((literals @ eta).max())
        assert np.size(additionals) == 0


def test_knapsack_oracle_is_the_best_vertex(rng):
    for _ in range(50):
        costs, budget = rng.uniform(-1, 3, 4).clip(0).round(1), round(rng.uniform(0, 4), 1)
        factor = row_view(Knapsack(variables((1, 4)), costs, budget), 0)
        m, _ = judges.knapsack(costs, budget)
        eta = rng.normal(size=4)
        vertex, _ = factor.vertex(factor.solve_map(eta, np.empty(0)))
        assert vertex @ eta == pytest.approx((m @ eta).max())
        assert costs @ vertex <= budget + 1e-12


@pytest.mark.parametrize("force_budget", [False, True])
def test_budget_oracle_is_the_best_vertex(rng, force_budget):
    for budget in range(5):
        factor = row_view(Budget(variables(4), budget, force_budget), 0)
        m, _ = judges.budget(4, budget, exact=force_budget)
        eta = rng.normal(size=4)
        vertex, _ = factor.vertex(factor.solve_map(eta, np.empty(0)))
        assert vertex @ eta == pytest.approx((m @ eta).max())


def test_pair_oracle_is_the_best_vertex(rng):
    u = variables(2)
    factor = row_view(Pair(u[0], u[1], 0.5), 0)
    m, n = judges.pair()
    for _ in range(20):
        eta_u, eta_v = rng.normal(size=2), rng.normal(size=1)
        vertex, both = factor.vertex(factor.solve_map(eta_u, eta_v))
        assert vertex @ eta_u + both @ eta_v == pytest.approx((m @ eta_u + n @ eta_v).max())


# -------------------------------------------------------------------- rows


def test_axis_lengths_and_mask(rng):
    scores = rng.normal(size=(3, 4))
    ids = np.arange(12).reshape(3, 4)
    mask = np.array([[1, 1, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1]], dtype=bool)
    settings = [
        (dict(axis=0), [ids[:, j] for j in range(4)]),
        (dict(axis=-2), [ids[:, j] for j in range(4)]),
        (dict(lengths=[1, 4, 2]), [ids[0, :1], ids[1], ids[2, :2]]),
        (dict(axis=0, lengths=[1, 3, 2, 3]), [ids[:n, j] for j, n in enumerate([1, 3, 2, 3])]),
        (dict(mask=mask), [ids[i, mask[i]] for i in range(3)]),
        (dict(axis=0, mask=mask), [ids[mask[:, j], j] for j in range(4)]),
        (dict(mask=mask[2:]), list(ids)),
    ]
    for factor_type, vertices in VERTICES.items():
        for options, rows in settings:
            fg = FactorGraph()
            u = fg.variable_from(scores)
            fg.add(factor_type(u, **options))
            fg.solve()
            expected = judged(scores, [(vertices(len(row)), row) for row in rows])
            np.testing.assert_allclose(u.value, expected, rtol=0, atol=1e-8)


def test_row_parameters_and_costs_follow_the_axis(rng):
    scores, costs = rng.normal(size=(3, 4)) + 1, rng.uniform(0.5, 2, size=(3, 4))
    ids = np.arange(12).reshape(3, 4)
    fg = FactorGraph()
    u = fg.variable_from(scores)
    fg.add(Knapsack(u, costs, [0.5, 1.0, 1.5, 2.0], axis=0))
    fg.solve()
    rows = [(judges.knapsack(costs[:, j], 0.5 * (j + 1)), ids[:, j]) for j in range(4)]
    np.testing.assert_allclose(u.value, judged(scores, rows), rtol=0, atol=1e-8)

    fg = FactorGraph()
    u = fg.variable_from(scores)
    fg.add(Budget(u, [0, 1, 2, 3], [True, False, True, False], axis=0))
    fg.solve()
    rows = [(judges.budget(3, j, exact=j % 2 == 0), ids[:, j]) for j in range(4)]
    np.testing.assert_allclose(u.value, judged(scores, rows), rtol=0, atol=1e-8)


def test_costs_skip_what_is_masked(rng):
    scores, costs = rng.normal(size=(2, 4)) + 1, rng.uniform(0.5, 2, size=4)
    mask = np.array([[1, 0, 1, 1], [0, 1, 1, 0]], dtype=bool)
    fg = FactorGraph()
    u = fg.variable_from(scores)
    fg.add(Knapsack(u, costs, 1.0, mask=mask))
    fg.solve()
    ids = np.arange(8).reshape(2, 4)
    rows = [(judges.knapsack(costs[mask[i]], 1.0), ids[i, mask[i]]) for i in range(2)]
    np.testing.assert_allclose(u.value, judged(scores, rows), rtol=0, atol=1e-8)


def test_a_sequence_of_variables_is_stacked():
    fg = FactorGraph()
    a, b = fg.variable_from([0.9, 0.1]), fg.variable_from(0.4)
    factor = fg.add(Imply([a, b]))
    assert factor.n_factors == 2
    fg.solve()
    assert a.value[0] <= b.value + 1e-6


def test_pairs_broadcast():
    fg = FactorGraph()
    u, v = fg.variable_from(np.zeros((3, 1))), fg.variable_from(np.zeros(4))
    factor = Pair(u, v, np.arange(4.0))
    assert factor.n_factors == 12
    np.testing.assert_array_equal(factor.additionals, np.tile(np.arange(4.0), (3, 1)))


def test_pair_scores_keep_their_gradient():
    torch = pytest.importorskip("torch")
    w = torch.tensor(0.3, requires_grad=True)
    u = variables(3)
    factor = Pair(u[:-1], u[1:], w)
    assert factor.additionals.shape == (2,)
    factor.additionals.sum().backward()
    assert w.grad == 2


def test_the_givens_are_not_changed():
    u = variables((2, 3))
    costs, mask = np.ones((2, 3)), np.ones((2, 3), dtype=bool)
    Knapsack(u, costs, 1, mask=mask)
    AndOut(u, mask=mask)
    assert not u.negated.any() and mask.all() and (costs == 1).all()


# -------------------------------------------------------------------- what they refuse


@pytest.mark.parametrize("factor_type", NEEDS_A_VARIABLE)
def test_an_empty_row_is_named(factor_type):
    name = factor_type.__name__
    with pytest.raises(ValueError, match=rf"^{name}: row 1 covers no variable; expected at least"):
        factor_type(variables((3, 4)), lengths=[2, 0, 1])
    with pytest.raises(ValueError, match=rf"^{name}: row \(1, 0\) covers no variable"):
        factor_type(variables((2, 2, 3)), mask=np.array([1, 0], dtype=bool)[:, None, None])
    with pytest.raises(ValueError, match=rf"^{name}: the row covers no variable"):
        factor_type(variables(0))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda u: Xor(u, axis=2), r"^Xor: axis is 2; expected -2 to 1, an axis of"),
        (
            lambda u: Xor(u, mask=np.ones(5, bool)),
            r"^Xor: mask has shape \(5,\); expected one that",
        ),
        (lambda u: Budget(u, -1), r"^Budget: budget of row 0 is -1; expected a whole number"),
        (lambda u: Budget(u, [1, 1.5]), r"^Budget: budget of row 1 is 1.5; expected a whole"),
        (lambda u: Budget(u, 4, True), r"^Budget: budget of row 0 is 4 with force_budget, but it"),
        (
            lambda u: Budget(u, 2, force_budget=True, lengths=[3, 1]),
            r"^Budget: budget of row 1 is 2 with force_budget, but it covers 1 variables",
        ),
        (lambda u: Budget(u, [1, 2, 3]), r"^Budget: budget has shape \(3,\); expected one that"),
        (lambda u: Budget(u, np.nan), r"^Budget: budget holds a value that is not finite"),
        (lambda u: Knapsack(u, -np.ones(3), 1), r"^Knapsack: costs holds -1; expected numbers"),
        (lambda u: Knapsack(u, np.inf, 1), r"^Knapsack: costs holds a value that is not finite"),
        (lambda u: Knapsack(u, np.ones(4), 1), r"^Knapsack: costs has shape \(4,\); expected"),
        (lambda u: Knapsack(u, 1, [1, -2]), r"^Knapsack: budget of row 1 is -2; expected 0"),
        (lambda u: Pair(u[0], u[1], np.ones(4)), r"^Pair: scores has shape \(4,\); expected one"),
    ],
)
def test_bad_numbers(make, message):
    with pytest.raises(ValueError, match=message):
        make(variables((2, 3)))


def test_bad_variables():
    with pytest.raises(TypeError, match=r"^Xor: variables: got an ndarray; expected Variables"):
        Xor(np.zeros(3))
    with pytest.raises(ValueError, match=r"^Xor: variables has shape \(\); expected at least 1"):
        Xor(variables(()))
    with pytest.raises(TypeError, match="entry 1 is a float; expected Variables"):
        Pair(variables(()), 1.0, 0.0)
    u = variables((3, 2))
    with pytest.raises(TypeError, match=r"axis is Variables.* Join views in a list: Imply\(\[a, b"):
        Imply(u[0], u[1])
    with pytest.raises(TypeError, match="scores is Variables.*; expected numbers, .* two views"):
        Pair(u[0], u[1], u[2])


def test_torch_scores_of_a_wrong_shape():
    torch = pytest.importorskip("torch")
    u = variables(3)
    with pytest.raises(ValueError, match=r"^Pair: scores has shape \(4,\)"):
        Pair(u[:-1], u[1:], torch.ones(4))
