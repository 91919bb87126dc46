"""Tables over multi-valued variables against enumeration and the judges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import judges
from checks import SLOW, Case, check_gradients, check_oracle, check_probabilities, check_sparsemap
from lpsmap_core import FactorGraph, Status
from lpsmap_factors_logic import Dense, Pair, Potts

SIZES = [(1,), (4,), (1, 1), (2, 2), (3, 2), (2, 3, 2), (1, 3, 2), (2, 2, 2, 2)]
"""Numbers of states of the variables of a factor."""


def structures(sizes):
    """Return all choices of a state each: the states as ones, and the entry of the table."""
    choices = list(itertools.product(*map(range, sizes)))
    blocks = [[np.eye(k)[j] for k, j in zip(sizes, c, strict=True)] for c in choices]
    return np.array([np.concatenate(states) for states in blocks]), np.eye(len(choices))


def case(sizes):
    ends = np.cumsum(sizes)

    def make(u, eta_v):
        blocks = [u[:, end - k : end] for k, end in zip(sizes, ends, strict=True)]
        return Dense(blocks, eta_v.reshape(-1, *sizes))

    return Case(make, (int(ends[-1]),), *structures(sizes))


@pytest.mark.parametrize("sizes", SIZES)
def test_best_entry_is_the_best_of_all(draws, sizes):
    check_oracle(case(sizes), draws // 5)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
def test_best_entry_is_the_best_of_all_in_many_draws(sizes):
    check_oracle(case(sizes), SLOW, seed=1)


@pytest.mark.parametrize("sizes", SIZES)
def test_solutions_are_the_judges(draws, sizes):
    check_sparsemap(case(sizes), draws // 20)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (2, 3, 2)])
def test_gradients_are_differences(draws, sizes):
    check_gradients(case(sizes), draws // 10)
    check_probabilities(case(sizes), draws // 20, scale=0.5)


def random_field(rng, n, k, edges):
    """Return a graph of a Dense factor on every edge, and what the judge needs of it."""
    scores, table = rng.normal(size=(n, k)), rng.normal(size=(len(edges), k, k))
    graph = FactorGraph()
    x = graph.variable_from(scores)
    i, j = np.array(edges).T
    factor = graph.add(Dense([x[i], x[j]], table))
    m, entries = structures((k, k))
    factors = [
        ([*x.index[a], *x.index[b]], [False] * 2 * k, m, entries, table[e].reshape(-1))
        for e, (a, b) in enumerate(edges)
    ]
    return graph, x, factor, judges.solve_graph(scores.reshape(-1), factors)


@pytest.mark.parametrize("edges", [[(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 2), (2, 0), (2, 3)]])
def test_one_declaration_has_a_factor_for_every_edge(rng, edges):
    for k in (2, 3):
        graph, x, factor, judged = random_field(rng, 4, k, edges)
        assert graph.solve().ok
        assert factor.n_factors == len(edges)
        np.testing.assert_allclose(x.value.reshape(-1), judged[0], atol=1e-5)
        entries = factor.additionals_value
        np.testing.assert_allclose(entries.sum(axis=2), x.value[np.array(edges)[:, 0]], atol=1e-5)
        np.testing.assert_allclose(entries.sum(axis=1), x.value[np.array(edges)[:, 1]], atol=1e-5)


def test_two_states_are_a_pair(rng):
    """On and off as two states: "off" has a quadratic term, too, as if scores were halved."""
    eta, w = rng.normal(size=(20, 2)), rng.normal(size=20)
    plain = FactorGraph()
    u = plain.variable_from((eta + 1.0) / 2.0)
    plain.add(Pair(u[:, 0], u[:, 1], w / 2.0))
    plain.solve()
    graph, table = FactorGraph(), np.zeros((20, 2, 2))
    table[:, 1, 1] = w
    x = graph.variable_from(np.stack([0.0 * eta, eta], axis=-1))
    graph.add(Dense([x[:, 0], x[:, 1]], table))
    graph.solve()
    np.testing.assert_allclose(x.value[..., 1], u.value, atol=1e-7)


def test_potts_is_a_table_with_a_diagonal(rng):
    """One number a pair in place of a table, with the values, sums and gradients of the table."""
    scores, strength = rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 4))
    direction = rng.normal(size=scores.shape)
    found = []
    for potts in (True, False):
        graph = FactorGraph()
        x = graph.variable_from(scores)
        table = strength[..., None, None] * np.eye(3)
        edges = [x[:, :-1], x[:, 1:]]
        factor = graph.add(Potts(*edges, strength) if potts else Dense(edges, table))
        graph.add(Potts(x[:-1], x[1:], -0.5))
        solution = graph.solve(tol=1e-12)
        gradient = solution.vjp(direction.reshape(-1))[1][0].reshape(factor.additionals.shape)
        equal = factor.additionals_value
        if not potts:
            equal, gradient = (np.trace(a, axis1=-2, axis2=-1) for a in (equal, gradient))
        assert equal.shape == gradient.shape == strength.shape
        found.append((x.value, equal, gradient))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_best_states_of_potts(rng, k):
    """By enumeration, with ties, forced and forbidden states, and equal ones forbidden."""
    n = 200
    scores, strength = rng.integers(-2, 3, size=(n, 2, k)).astype(float), rng.integers(-3, 4, n)
    strength = np.where(rng.random(n) < 0.1, -np.inf if k > 1 else 0.0, strength)
    scores[: n // 4] += rng.normal(size=(n // 4, 2, k))
    if k > 2:
        scores[-20:, 0, 1], scores[-20:, 1, 0] = -np.inf, -1e9
    graph = FactorGraph()
    x = graph.variable_from(scores)
    factor = graph.add(Potts(x[:, 0], x[:, 1], strength))
    graph.solve_map()
    totals = scores[:, 0, :, None] + scores[:, 1, None]
    totals = np.where(np.eye(k) > 0, totals + strength[:, None, None], totals)
    first, second = x.value.argmax(-1).T
    np.testing.assert_array_equal(x.value.sum(-1), 1.0)
    np.testing.assert_array_equal(factor.additionals_value, first == second)
    best = totals[np.arange(n), first, second]
    np.testing.assert_allclose(best, totals.max((1, 2)), rtol=1e-12)


def test_potts_stores_no_tables():
    """The arrays of a grid are as long as its states, whatever the number of their pairs."""
    graph = FactorGraph()
    x = graph.variable((3, 4, 7))
    factor = graph.add(Potts(x[:, :-1], x[:, 1:], 0.5))
    assert factor.n_additionals == 1
    assert factor.strength.base is not None  # one number, broadcast
    assert factor.strength.strides == (0, 0)


@pytest.mark.parametrize("forbids", [False, True])
@pytest.mark.parametrize("linear", [False, True])
def test_a_table_of_all_edges_is_stored_once(rng, linear, forbids):
    """It is solved like as many copies of it, and belongs to the solution."""
    scores, table = rng.normal(size=(3, 4, 3)), rng.normal(size=(3, 3))
    direction = rng.normal(size=scores.size)
    table[0, 2] = -np.inf if forbids else table[0, 2]
    found = []
    for given in (table.copy(), np.tile(table, (3, 3, 1, 1))):
        graph = FactorGraph()
        x = graph.variable_from(scores)
        edges = graph.add(Dense([x[:, :-1], x[:, 1:]], given))
        graph.add(Pair(x[:-1], x[1:], 0.3))
        solution = graph.solve_map() if linear else graph.solve()
        given[...] = 7.0
        kept = solution.additional_scores[0]
        numbers = [solution.values, solution.additionals[0], solution.objective, solution.gap]
        decoded = solution.decode()
        numbers += [*solution.vjp(direction)[1], decoded.score, decoded.bound, kept]
        found.append(numbers)
        assert edges.additionals_value.shape == (3, 3, 3, 3)
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [numbers[-1].strides[0] for numbers in found] == [0, 72]


def test_forbidden_choices():
    graph = FactorGraph()
    x = graph.variable_from([[1.0, 0.9, 0.0]] * 2)
    table = np.where(np.eye(3) > 0, -np.inf, 0.0)
    factor = graph.add(Dense([x[0], x[1]], table))
    graph.solve()
    np.testing.assert_allclose(np.diag(factor.additionals_value), 0.0)
    m, entries = structures((3, 3))
    apart = entries @ np.where(np.isinf(table), 1.0, 0.0).reshape(-1) == 0
    z, _ = judges.project_polytope(
        m[apart], np.empty((6, 0)), np.tile([1.0, 0.9, 0.0], 2), [], np.ones(6)
    )
    np.testing.assert_allclose(x.value.reshape(-1), z, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*components were not solved")
def test_a_table_without_a_choice_is_a_contradiction():
    graph = FactorGraph()
    x = graph.variable((2, 2))
    factor = graph.add(Dense([x[0], x[1]], np.full((2, 2), -np.inf)))
    solution = graph.solve()
    assert solution.status[0] is Status.INFEASIBLE
    assert solution.contradictions[0][0][0] is factor


def test_factors_of_different_sizes_share_a_bucket(rng):
    """Tables of several shapes and orders are declarations of one type."""
    scores = [rng.normal(size=k) for k in (2, 3, 4)]
    graph = FactorGraph()
    x = [graph.variable_from(s) for s in scores]
    tables = [rng.normal(size=size) for size in ((2, 3), (3, 4), (2, 3, 4))]
    scopes = [[0, 1], [1, 2], [0, 1, 2]]
    for scope, table in zip(scopes, tables, strict=True):
        graph.add(Dense([x[i] for i in scope], table))
    assert graph.solve().ok
    factors = []
    for scope, table in zip(scopes, tables, strict=True):
        m, entries = structures(table.shape)
        ids = np.concatenate([x[i].index for i in scope])
        factors.append((ids, [False] * len(ids), m, entries, table.reshape(-1)))
    judged = judges.solve_graph(np.concatenate(scores), factors)[0]
    np.testing.assert_allclose(np.concatenate([v.value for v in x]), judged, atol=1e-5)


def test_bad_input_is_refused_in_words():
    graph = FactorGraph()
    x, y = graph.variable((2, 3)), graph.variable((3, 2))
    for make, error, words in (
        (lambda: Dense([], 0.0), ValueError, "blocks is empty"),
        (lambda: Dense(3, 0.0), TypeError, "got an int; expected a list of Variables"),
        (lambda: Dense([x, 3], 0.0), TypeError, "entry 1 of blocks is an int"),
        (lambda: Dense([x, y], 0.0), ValueError, r"shapes \(2, 3\), \(3, 2\); expected leading"),
        (lambda: Dense([x[0, 0]], 0.0), ValueError, r"shape \(\); expected at least one state"),
        (lambda: Dense(x[:, :0], 0.0), ValueError, r"shape \(2, 0\); expected at least one"),
        (lambda: Dense(x, np.zeros(2)), ValueError, r"table has shape \(2,\); .* \(2, 3\)"),
        (lambda: Dense(x, "abc"), TypeError, "table is 'abc'; expected real numbers"),
        (lambda: Dense([x, FactorGraph().variable(2)], 0.0), ValueError, "different graphs"),
        (lambda: Potts(x[0], y[0], 1.0), ValueError, "have 3 and 2 states"),
        (lambda: Potts(x, x, np.zeros(3)), ValueError, r"strength has shape \(3,\)"),
    ):
        with pytest.raises(error, match=words):
            make()


def test_gradients_reach_tables_and_strengths_of_torch():
    torch = pytest.importorskip("torch")
    from lpsmap_torch import TorchFactorGraph

    scores = torch.tensor([[0.3, 0.1], [0.0, 0.4], [0.2, 0.1]], dtype=torch.float64)
    table = torch.tensor([[0.2, 0.0], [0.0, 0.1]], dtype=torch.float64, requires_grad=True)
    strength = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)

    def mean(table, strength):
        graph = TorchFactorGraph()
        x = graph.variable_from(scores)
        graph.add(Dense([x[:-1], x[1:]], table))  # one table for both edges
        graph.add(Potts(x[0], x[2], strength))
        graph.solve(tol=1e-10)
        return x.value[:, 0] @ torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    assert torch.autograd.gradcheck(mean, (table, strength), eps=1e-5, atol=1e-5)
