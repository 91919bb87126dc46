"""Graphs given evidence, against enumeration restricted to it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import judges
import lpsmap
from lpsmap_core import FactorGraph, Status
from lpsmap_core.api import declared_variables
from random_graphs import KINDS, random_graph


def restricted(problem, known):
    """Return the judge's marginals of a random graph, of the structures that evidence leaves."""
    on, free = known == 1.0, np.isnan(known)
    place = np.cumsum(free) - 1
    factors = []
    for d in problem.declared:
        fits = np.ones(len(d.m), dtype=bool)
        keep = free[d.variables]
        for slot, v in enumerate(d.variables):
            if not free[v]:
                fits &= d.m[:, slot] == (on[v] ^ d.negated[slot])
        ids, flips = place[d.variables[keep]], d.negated[keep]
        factors.append(judges.EnumeratedFactor(ids, flips, d.m[fits][:, keep], d.n[fits], d.eta_v))
    factors = [f for f in factors if len(f.variables)]
    mu = np.where(on, 1.0, 0.0)
    if free.any():
        mu[free] = judges.solve_graph(problem.eta[free], factors)[0]
    return mu


KINDS_OF_WHOLE = [kind for kind in KINDS if kind not in ("Knapsack", "DepTree")]


def assignment_of(problem):
    """Return a 0/1 assignment that satisfies all factors, by exhaustion; None without one."""
    n = len(problem.eta)
    if n > 10:
        return None
    for bits in range(2**n):
        x = (bits >> np.arange(n)) & 1
        slots = (np.where(d.negated, 1 - x[d.variables], x[d.variables]) for d in problem.declared)
        if all((d.m == s).all(axis=1).any() for d, s in zip(problem.declared, slots, strict=True)):
            return x
    return None


def test_marginals_are_those_of_what_evidence_leaves(rng):
    checked = 0
    while checked < 12:
        problem = random_graph(rng, n_factors=3, kinds=KINDS_OF_WHOLE)
        x = assignment_of(problem)
        if x is None:
            continue
        known = np.where(rng.random(len(x)) < 0.4, x, np.nan)
        graph, u, factors = problem.build()
        given = graph.condition([(u, known)])
        solution = given.graph.solve(tol=1e-9)
        assert solution.ok
        np.testing.assert_allclose(given.of(u).value, restricted(problem, known), atol=1e-6)
        for factor in factors:
            again, view = given.of(factor), factor.variables
            view = declared_variables(factor)
            values = given.of(view).value
            for distribution in solution.structures(again):
                mean = sum(
                    p * s.variables
                    for p, s in zip(distribution.probabilities, distribution, strict=True)
                )
                np.testing.assert_allclose(np.ravel(mean), np.ravel(values), atol=1e-6)
        checked += 1


def test_states_of_multi_valued_variables(rng):
    scores, table = rng.normal(size=(5, 3)), rng.normal(size=(4, 3, 3))
    graph = FactorGraph()
    x = graph.variable_from(scores)
    chain = graph.add(lpsmap.Dense([x[:-1], x[1:]], table))
    given = graph.condition([(x[2], [0, 1, 0]), (~x[4], [1, 1, 0])])
    solution = given.graph.solve(tol=1e-9)
    np.testing.assert_array_equal(given.of(x).value[[2, 4]], [[0, 1, 0], [0, 0, 1]])
    # what the known variable separates
    assert len(solution.status) == 2
    entries = given.of(chain).additionals_value
    np.testing.assert_allclose(entries[1].sum(axis=0), [0, 1, 0], atol=1e-9)
    np.testing.assert_allclose(entries[3][:, 2], given.of(x).value[3], atol=1e-7)
    alone = FactorGraph()
    y = alone.variable_from(scores[3] + table[2, 1] + table[3, :, 2])
    alone.add(lpsmap.Xor(y))
    alone.solve()
    np.testing.assert_allclose(given.of(x).value[3], y.value, atol=1e-7)


def test_the_best_assignment_given_evidence(rng):
    scores, table = rng.normal(size=(5, 3)), rng.normal(size=(5, 3, 3))
    i, j = np.array([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])
    graph = FactorGraph()
    x = graph.variable_from(scores)
    graph.add(lpsmap.Dense([x[i], x[j]], table))
    given = graph.condition([(x[2], [0, 1, 0]), (x[4, 0], 0)])
    assert given.graph.solve_map(exact=True).ok
    allowed = [s for s in np.ndindex(*[3] * 5) if s[2] == 1 and s[4] != 0]
    states = np.array(allowed)
    totals = scores[np.arange(5), states].sum(axis=1)
    totals += table[np.arange(5), states[:, i], states[:, j]].sum(axis=1)
    np.testing.assert_array_equal(given.of(x).value.argmax(axis=1), states[totals.argmax()])


def test_rescored_factors_and_masks(rng):
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 4)))
    pairs = graph.add(lpsmap.Pair(u[:, 0], u[:, 1], np.zeros(3)))
    graph.add(lpsmap.AtMostOne(u, lengths=[4, 2, 3]))
    graph.rescore(pairs, np.array([-1.0, -2.0, 3.0]))
    given = graph.condition([(u[:, 1], [1, np.nan, 0])])
    assert given.graph.solve().ok
    value = given.of(u).value
    np.testing.assert_array_equal(value[0], [0, 1, 0, 0])
    np.testing.assert_array_equal(
        given.graph.additional_scores(given.of(pairs)).ravel(), [-1, -2, 3]
    )
    assert value[2, 1] == 0
    assert u.graph.solution is None


def test_evidence_on_nothing_changes_nothing(rng):
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 4)))
    graph.add(lpsmap.Xor(u))
    for evidence in ([], [(u, np.nan)], [(u[:0], 1)]):
        given = graph.condition(evidence)
        given.graph.solve()
        graph.solve()
        np.testing.assert_array_equal(given.of(u).value, u.value)


@pytest.mark.filterwarnings("ignore:.*components were not solved")
def test_evidence_that_a_factor_contradicts_is_named():
    graph = FactorGraph()
    u = graph.variable((2, 3))
    factor = graph.add(lpsmap.Xor(u))
    given = graph.condition([(u[0, :2], 1)])
    solution = given.graph.solve()
    assert [s is Status.INFEASIBLE for s in solution.status].count(True) == 1
    (named,) = solution.contradictions.values()
    assert named[0][0] is given.of(factor)


def test_factors_of_other_graphs_are_not_found():
    graph = FactorGraph()
    factor = graph.add(lpsmap.Xor(graph.variable(2)))
    given = graph.condition([])
    with pytest.raises(ValueError, match="Xor.* is not in the original graph"):
        given.of(given.of(factor))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_factors_of_a_copy_are_found(copied):
    graph = FactorGraph()
    factor = graph.add(lpsmap.Xor(graph.variable(2)))
    graph, factor, given = copied((graph, factor, graph.condition([])))
    assert given.of(factor) is given.graph.factors[0]


def test_variables_of_no_factor_keep_their_value():
    graph = FactorGraph()
    u = graph.variable_from([0.3, 0.4, 0.5])
    given = graph.condition([(u[:2], [1, 0])])
    given.graph.solve()
    np.testing.assert_array_equal(given.of(u).value, [1, 0, 0.5])


def test_bad_evidence_is_refused_in_words():
    graph = FactorGraph()
    u = graph.variable((2, 3))
    for evidence, words in (
        ([(u, 2)], r"evidence\[0\] holds 2; expected 0, 1, or NaN"),
        ([(u[0], 1), (u[:, 0], 0)], r"evidence\[1\]: a variable is given both as 0 and as 1"),
        ([(u[[0, 0], 0], [0, 1])], "given both as 0 and as 1"),
        ([(FactorGraph().variable(2), 1)], "expected a pair of Variables of this graph"),
        ([(3, 1)], "expected a pair of Variables of this graph"),
        ([(u, np.zeros(2))], r"has shape \(2,\); expected one that broadcasts to \(2, 3\)"),
    ):
        with pytest.raises(ValueError, match=words):
            graph.condition(evidence)
    with pytest.raises(TypeError, match="is 'on'; expected real numbers"):
        graph.condition([(u, "on")])


def test_gradients_pass_by_what_is_known():
    torch = pytest.importorskip("torch")
    from lpsmap_torch import TorchFactorGraph

    scores = torch.tensor([[0.3, 0.1, 0.2], [0.0, 0.4, 0.1]], requires_grad=True)
    graph = TorchFactorGraph()
    u = graph.variable_from(scores)
    graph.add(lpsmap.Budget(u, 2))
    graph.add(lpsmap.AtMostOne(u, axis=0))
    given = graph.condition([(u[0, 0], 1), (u[1, 1], 0)])
    given.graph.solve()
    value = given.of(u).value
    assert value.dtype == torch.float32
    assert value[0, 0] == 1 and value[1, 1] == 0 and value[1, 0] == 0
    value[0, 2].backward()
    assert scores.grad[0, 0] == scores.grad[1, 1] == 0
    assert scores.grad[0, 2] != 0
