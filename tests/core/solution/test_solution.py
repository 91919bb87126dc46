"""What a solution says: its objective, structures, additionals and products."""

from __future__ import annotations

import pickle

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import DepTree, FactorGraph, Or, OrOut, Pair, Status, Xor
from lpsmap_core import ConvergenceWarning, Factor
from matchings import matching
from random_graphs import Polytope, random_graph

FloatArray = npt.NDArray[np.float64]


def test_the_objective_is_its_formula() -> None:
    for seed in range(10):
        drawn = random_graph(np.random.default_rng(seed), 5)
        graph, u, factors = drawn.build()
        solution = graph.solve(tol=1e-9, max_iter=5000)
        linked = solution.component_of(u) >= 0
        mu = u.value[linked]
        expected = drawn.eta[linked] @ mu - 0.5 * mu @ mu
        for factor, eta_v in zip(factors, drawn.eta_v, strict=True):
            if factor.n_additionals:
                expected += eta_v @ graph.additionals_of(factor).reshape(-1)
        np.testing.assert_allclose(solution.objective.sum(), expected, atol=1e-12)


class Counted(Factor):
    """One of the variables is on, if there are any; an additional is always on."""

    def solve_map(self, eta_u, eta_v):
        return int(eta_u.argmax()) if eta_u.size else -1

    def vertex(self, y):
        return np.arange(self.event_shape[0]) == y, np.ones(1)


def test_additionals_of_a_factor_without_variables_affect_no_component() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.0, 0.0], [0.5, 0.0]]))
    graph.add(Counted(u, np.array([[np.nan], [1.0]]), lengths=[0, 2]))
    solution = graph.solve()
    assert solution.status.tolist() == [Status.SOLVED]
    np.testing.assert_allclose(u.value[1], [0.75, 0.25], atol=1e-12)
    # 1/2 * 3/4 + 1 - 1/2 (9/16 + 1/16)
    np.testing.assert_allclose(solution.objective, [1.0625], atol=1e-12)


def test_structures_reproduce_the_marginals() -> None:
    rng = np.random.default_rng(10)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 4)))
    rows = graph.add(OrOut(u))
    columns = graph.add(Polytope(~u.T, *judges.at_least_one(3)))
    solution = graph.solve(tol=1e-9)
    for found, expected in [
        (solution.structures(rows), u.value),
        (solution.structures(columns), 1 - u.value.T),
    ]:
        for structures, marginals in zip(found, expected, strict=True):
            p = np.array([s.probability for s in structures])
            assert p.sum() == pytest.approx(1.0)
            assert (np.diff(p) <= 0).all()
            assert (p > 0).all()
            np.testing.assert_allclose(
                p @ np.array([s.variables for s in structures]), marginals, atol=1e-8
            )
    with pytest.raises(ValueError, match="structures: .* is not a factor of the solved graph"):
        solution.structures(Xor(u))


def test_additionals_have_the_shape_of_their_scores() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((2, 3, 2)))
    factor = graph.add(Pair(u[..., 0], u[..., 1], np.ones((2, 3))))
    with pytest.raises(RuntimeError, match="call graph"):
        graph.additionals_of(factor)
    graph.solve()
    assert graph.additionals_of(factor).shape == (2, 3)
    with pytest.raises(ValueError, match="not in this graph"):
        graph.additionals_of(Or(u))


def test_repr() -> None:
    graph, _ = matching(np.eye(3))
    assert repr(graph) == "FactorGraph(9 variables, 2 factors)"
    assert repr(graph.solve()) == "Solution(9 variables; components: 1 SOLVED)"


def test_statuses_as_text_are_counts() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[0.0, 1.0], [np.nan, 1.0], [2.0, 1.0]]))
    graph.add(Xor(u))
    with pytest.warns(ConvergenceWarning):
        status = graph.solve().status
    assert str(status) == "1 NON_FINITE, 2 SOLVED"
    assert str(status[:1]) == "1 SOLVED"
    assert repr(status[1]) == "Status.NON_FINITE"
    assert type(status == Status.SOLVED) is np.ndarray
    assert pickle.loads(pickle.dumps(status)).tolist() == status.tolist()


def test_single_factors_that_are_solved_together_are_as_alone() -> None:
    # 3 trees of 19 words have more variables than are taken at once, and rows of 70 many fewer
    rng = np.random.default_rng(5)
    for shape, factor_type in (((7, 19, 19), DepTree), ((40, 70), Xor)):
        scores = rng.normal(size=shape)
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(factor_type(u))
        solution = graph.solve()
        direction = rng.normal(size=shape)
        product = solution.vjp(direction)[0].reshape(shape)
        for i in range(len(scores)):
            alone = FactorGraph()
            one = alone.variable_from(scores[i])
            alone.add(factor_type(one))
            other = alone.solve()
            np.testing.assert_array_equal(u.value[i], one.value)
            np.testing.assert_array_equal(product[i].ravel(), other.vjp(direction[i])[0])


def test_a_factor_that_ran_out_does_not_hold_up_those_beside_it() -> None:
    scores = np.zeros((3, 6, 6))
    scores[0] = scores[2] = 50.0 * np.eye(6)  # one tree is the solution
    scores[1] = np.random.default_rng(6).normal(size=(6, 6)) / 10
    graph = FactorGraph()
    graph.add(DepTree(graph.variable_from(scores), projective=True))
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve(max_inner_iter=3)
    solved = [status in (Status.SOLVED, Status.CONVERGED) for status in solution.status]
    assert solved == [True, False, True]


def test_a_direction_that_is_no_number_comes_through_where_nothing_moves() -> None:
    # as through softmax: a scaler of gradients has to see that a step is to be skipped
    graph = FactorGraph()
    u = graph.variable_from([0.3, 0.2, -5.0, 0.1, 0.0])
    graph.add(Xor(u))
    solution = graph.solve()
    direction = np.array([1.0, 2.0, np.nan, 4.0, 8.0])
    assert u.value[2] == 0.0
    assert np.isnan(solution.vjp(direction)[0]).all()
