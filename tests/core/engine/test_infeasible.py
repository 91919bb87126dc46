"""Contradictory graphs are reported, with the factors that contradict; feasible ones never are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from lpsmap import (
    AtMostOne,
    Bits,
    Budget,
    DepTree,
    FactorGraph,
    Imply,
    Or,
    Sequence,
    Solution,
    Status,
    Variables,
    Xor,
)
from lpsmap_core import ConvergenceWarning, Factor, LocalSolver
from lpsmap_core.api import ActiveSets
from lpsmap_core.engine import infeasible
from lpsmap_core.engine.infeasible import FIRST_TEST
from lpsmap_core.local.solvers import solve_apart
from random_graphs import Polytope, random_graph
from warned import details_of

Declare = Callable[[Variables], Factor]


def exactly(n: int) -> Declare:
    return lambda u: Budget(u, n, force_budget=True)


def at_most(n: int) -> Declare:
    return lambda u: Budget(u, n)


def contradiction(rng: np.random.Generator) -> tuple[FactorGraph, list[Factor], int]:
    """Draw some factors that contradict each other, amid others that do not.

    Returns the graph, the contradicting factors, and how many of them it takes.
    """
    graph = FactorGraph()
    n = int(rng.integers(6, 20))
    u = graph.variable_from(float(rng.choice([0.1, 1.0, 10.0, 100.0])) * rng.normal(size=n))
    k = int(rng.integers(2, n // 2 + 1))
    some = u[rng.permutation(n)[: 2 * k]]
    half, rest = some[:k], some[k:]
    kinds: list[list[tuple[Variables, Declare]]] = [
        [(some, Xor), (half, Xor), (rest, Xor)],
        [(half, Xor), (half, exactly(2))],
        [(some, AtMostOne), (half, Or), (rest, Or)],
        [(half, Or), (~half, exactly(k))],
        [(some, exactly(k)), (half, at_most(k - 1)), (rest, at_most(0))],
        [(some, at_most(k - 1)), (half, exactly(k - 1)), (rest, Or)],
        [(half, Xor), (half[:1], lambda u: Or(~u)), (half[1:], at_most(0))],
    ]
    parts = kinds[int(rng.integers(len(kinds)))]
    wrong = [graph.add(declare(view)) for view, declare in parts]
    for _ in range(int(rng.integers(0, 4))):
        graph.add(AtMostOne(u[rng.permutation(n)[: int(rng.integers(2, 4))]]))
    return graph, wrong, len(parts)


def polytope_is_empty(solution: Solution, named: list[tuple[Factor, int]]) -> bool:
    """Decide by a linear program whether factors of 0/1 sums contradict each other."""
    n = len(solution.values)
    equal, right, below, most = [], [], [], []
    for factor, row in named:
        assert row == 0
        sign = np.where(factor.variables.negated, -1.0, 1.0)
        line = np.bincount(factor.variables.index, sign, n)
        shift = float(factor.variables.negated.sum())
        if isinstance(factor, Xor) or (isinstance(factor, Budget) and factor.force_budget.all()):
            equal.append(line)
            right.append((1.0 if isinstance(factor, Xor) else float(factor.budget[0])) - shift)
        elif isinstance(factor, Or):
            below.append(-line)
            most.append(shift - 1.0)
        else:
            below.append(line)
            limit = float(factor.budget[0]) if isinstance(factor, Budget) else 1.0
            most.append(limit - shift)
    result = linprog(
        np.zeros(n),
        A_ub=np.array(below).reshape(-1, n),
        b_ub=np.array(most),
        A_eq=np.array(equal).reshape(-1, n),
        b_eq=np.array(right),
        bounds=(0.0, 1.0),
    )
    return result.status == 2


def check_contradiction(seed: int) -> bool:
    """Solve one; return whether the factors named are as few as it takes."""
    graph, wrong, enough = contradiction(np.random.default_rng(seed))
    with pytest.warns(ConvergenceWarning, match="contradict") as caught:
        solution = graph.solve()
    assert "has no solution because of" in details_of(caught[0])
    named = solution.contradictions
    failed = solution.failed.tolist()
    assert [solution.status[c] for c in failed] == [Status.INFEASIBLE] * len(failed)
    assert sorted(named) == failed, seed
    culprits = [x for component in failed for x in named[component]]
    assert polytope_is_empty(solution, culprits), seed
    return len(culprits) == enough and {id(f) for f, _ in culprits} == {id(f) for f in wrong}


def check_feasible(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 9)), float(rng.choice([0.01, 1.0, 100.0])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = graph.build()[0].solve()
    assert Status.INFEASIBLE not in solution.status.tolist(), seed
    assert not solution.contradictions


def test_contradictions_are_named(draws: int) -> None:
    least = [check_contradiction(seed) for seed in range(draws // 10)]
    assert np.mean(least) > 0.8


def test_no_feasible_graph_is_called_infeasible(draws: int) -> None:
    for seed in range(draws // 5):
        check_feasible(seed)


@pytest.mark.compiled  # the loop calls the same method where it is not
@pytest.mark.parametrize("projective", [False, True])
def test_a_relaxation_asks_the_oracle_alone(
    monkeypatch: pytest.MonkeyPatch, projective: bool
) -> None:
    """At scores as large as the test's, an active set of trees of 64 words took minutes."""

    def by_closed_form(*arguments: Any) -> tuple[LocalSolver, Any, Any]:
        solver, z, v = solve_apart(*arguments)
        assert not isinstance(solver, ActiveSets)
        return solver, z, v

    monkeypatch.setattr(infeasible, "solve_apart", by_closed_form)
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).normal(size=(6, 6)))
    tree = graph.add(DepTree(u, projective=projective))
    budget = graph.add(Budget(u.reshape(-1), 5))  # of the 6 arcs that a tree has
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve_map()
    assert solution.status.tolist() == [Status.INFEASIBLE]
    assert {id(factor) for factor, _ in solution.contradictions[0]} == {id(tree), id(budget)}


@pytest.mark.slow
def test_many_contradictions_and_many_feasible_graphs() -> None:
    least = [check_contradiction(seed) for seed in range(1000, 1400)]
    assert np.mean(least) > 0.8
    for seed in range(1000, 4000):
        check_feasible(seed)


def test_what_forbidden_variables_leave_no_room_for_is_named() -> None:
    scores = np.random.default_rng(0).normal(size=(4, 5))
    scores[2] = -np.inf
    graph = FactorGraph()
    u = graph.variable_from(scores)
    rows, _ = graph.add(Xor(u)), graph.add(AtMostOne(u, axis=0))
    with pytest.warns(ConvergenceWarning, match="contradict") as caught:
        solution = graph.solve()
    assert "has no solution because of Xor 2" in details_of(caught[0])
    assert solution.contradictions == {0: [(rows, 2)]}


def test_a_forbidden_additional_is_named_with_its_factor() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.3, 0.1], [0.2, 0.4]]))
    factor = graph.add(Polytope(u, [[1, 0], [1, 1]], [[1], [1]], np.array([[0.0], [-np.inf]])))
    with pytest.warns(ConvergenceWarning, match="contradict") as caught:
        solution = graph.solve()
    assert "because of Polytope 1" in details_of(caught[0])
    assert solution.contradictions == {1: [(factor, 1)]}


# -------------------------------------------------------------------- with forbidden scores


def test_a_contradiction_of_forbidden_additionals_and_variables() -> None:
    """Each factor has structures left, but none that agree: found by the stress run."""
    graph = FactorGraph()
    u = graph.variable_from([[1.0, 0.0], [0.0, -np.inf]])
    switch = np.array([[-np.inf, 0.0], [0.0, -np.inf]])  # a step must change the state
    graph.add(Sequence(u, switch))
    graph.add(Xor([u[0, 0], u[0, 1]]))
    graph.add(Imply([u[0, 0], u[1, 0]]))
    graph.add(Imply([u[0, 1], u[1, 1]]))
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve()
    assert solution.status.tolist() == [Status.INFEASIBLE]


def test_looking_for_a_contradiction_leaves_the_faces_alone() -> None:
    """The latest look can be at the very limit of iterations."""
    rng = np.random.default_rng(3)
    graph = FactorGraph()
    u = graph.variable_from(rng.standard_normal((6, 6)))
    graph.add(DepTree(u, projective=True))
    graph.add(Budget(u, 1, axis=1))
    with pytest.warns(ConvergenceWarning):
        state = graph.solve(max_iter=FIRST_TEST, step_size=1e-3, adapt=False).solved.state
    (b,) = (b for b, solver in enumerate(state.solvers) if isinstance(solver, ActiveSets))
    found = state.solvers[b].structures(np.array([0]))
    weight = np.repeat(found.probability, np.diff(found.offsets))
    slots = np.bincount(found.entry, found.value * weight, state.part.buckets[b].n_links)
    links = state.part.links_of(b)
    z = state.problem.iterate.z[links]
    np.testing.assert_allclose(slots / state.part.delta[links], z, rtol=0, atol=1e-12)


def test_the_objective_is_finite_where_a_variable_is_forbidden() -> None:
    """Rounding leaves 1e-16 of a forbidden marginal, here in negated slots: found by the stress."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((20, 5))
    forbidden = rng.random(scores.shape) < 0.3
    scores[forbidden] = -np.inf
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Bits(~u))
    solution = graph.solve()
    expected = np.where(forbidden, 0.0, np.clip(scores, 0.0, 1.0))
    np.testing.assert_allclose(u.value, expected, rtol=0, atol=1e-12)
    allowed = np.where(forbidden, 0.0, scores)
    objective = (allowed * expected - 0.5 * expected**2).sum(axis=1)
    np.testing.assert_allclose(solution.objective, objective, rtol=0, atol=1e-12)
