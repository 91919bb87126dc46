"""Factor graphs: the verbs, the options, the statuses, and what one component owes another."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, Or, OrOut, Pair, Solution, Status, Xor
from lpsmap_core import ConvergenceWarning, stack
from lpsmap_core.engine.threads import default_threads
from random_graphs import Polytope, random_graph
from warned import details_of

FloatArray = npt.NDArray[np.float64]


def matching(scores: FloatArray) -> tuple[FactorGraph, Any]:
    """Return a graph of matchings: one of every row, at most one of every column."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=-2))
    return graph, u


# -------------------------------------------------------------------- the verbs


def test_the_calls_of_the_earlier_library() -> None:
    eta = np.random.default_rng(0).normal(size=(3, 5))
    graph = FactorGraph()
    u = graph.variable_from(eta)
    for i in range(3):
        graph.add(Xor(u[i, :]))
    for j in range(5):
        graph.add(AtMostOne(u[:, j]))
    graph.solve(max_iter=500, max_inner_iter=50, tol=1e-9, step_size=0.5, adapt=False, verbose=0)
    batched, v = matching(eta)
    batched.solve(tol=1e-9)
    np.testing.assert_allclose(u.value, v.value, atol=1e-8)


def test_the_one_factor_idiom_of_the_earlier_library() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.3, 0.1, -1.0]))
    graph.add(Xor(u))
    solution = graph.solve(max_iter=1, step_size=0)
    assert solution.ok
    np.testing.assert_allclose(u.value, [0.6, 0.4, 0.0])


def test_scores_are_read_at_the_solve_that_follows() -> None:
    graph = FactorGraph()
    a = graph.variable((2,))
    b = graph.variable_from([0.4])
    assert (graph.n_variables, a.shape, b.shape) == (3, (2,), (1,))
    graph.add(Xor(stack([a[0], a[1], b[0]])))
    solution = graph.solve()
    assert graph.solution is solution
    np.testing.assert_allclose(a.value, [0.2, 0.2])
    np.testing.assert_allclose(b.value, [0.6])


def test_add_refuses() -> None:
    graph, u = matching(np.zeros((2, 2)))
    with pytest.raises(
        TypeError, match=r"add: got a Variables; expected a Factor such as Xor\(u\)"
    ):
        graph.add(u)
    with pytest.raises(ValueError, match="variables of another graph.*variable_from"):
        FactorGraph().add(Xor(u))
    with pytest.raises(ValueError, match="added before"):
        graph.add(graph.factors[0])


def test_scores_must_be_real_numbers() -> None:
    for scores in (np.zeros(2, dtype=complex), np.array(["a"]), np.array([None]), "abc"):
        with pytest.raises(TypeError, match="scores (has dtype|is) .* expected real numbers"):
            FactorGraph().variable_from(scores)


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LPSMAP_THREADS", "3")
    assert default_threads() == 3
    monkeypatch.setenv("LPSMAP_THREADS", "many")
    with pytest.raises(ValueError, match="LPSMAP_THREADS: got 'many'; expected a positive integer"):
        default_threads()
    monkeypatch.delenv("LPSMAP_THREADS")
    assert default_threads() >= 1


def test_verbose_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    graph, _ = matching(np.eye(3))
    with caplog.at_level(logging.INFO, logger="lpsmap"):
        graph.solve(verbose=0)
        assert not caplog.records
        graph.solve(verbose=1)
    assert any("residuals" in record.getMessage() for record in caplog.records)


def test_verbose_shows_on_standard_error_where_logging_is_not_set_up() -> None:
    code = (
        "from lpsmap_core import FactorGraph; import logging; graph = FactorGraph(); "
        "graph.variable((2,)); graph.solve(verbose=True); "
        "logger = logging.getLogger('lpsmap'); assert not logger.handlers and not logger.level; "
        "logging.basicConfig(level=logging.WARNING); graph.solve(verbose=1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr.count("lpsmap: Solution(2 variables") == 1


# -------------------------------------------------------------------- corners


def test_variables_in_no_factor_are_clipped() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([-np.inf, -0.5, 0.0, 0.25, 1.0, 7.0]))
    solution = graph.solve()
    assert solution.ok
    np.testing.assert_array_equal(u.value, [0, 0, 0, 0.25, 1, 1])
    gradient, _ = solution.vjp(np.full(6, 3.0))
    np.testing.assert_array_equal(gradient, [0, 0, 0, 3, 0, 0])
    assert (solution.component_of(u) == -1).all()


def test_a_graph_of_nothing() -> None:
    solution = FactorGraph().solve()
    assert solution.ok
    assert solution.values.shape == (0,)
    assert solution.objective.dtype == np.float64
    assert solution.vjp(np.empty(0))[0].shape == (0,)


def test_declarations_of_no_factor_and_factors_of_no_variable() -> None:
    graph = FactorGraph()
    none = graph.variable_from(np.empty((0, 3)))
    u = graph.variable_from(np.array([[0.3, 0.1], [0.2, 2.0]]))
    empty = graph.add(Xor(none))
    ragged = graph.add(AtMostOne(u, lengths=[0, 2]))
    solution = graph.solve()
    assert solution.ok
    assert none.value.shape == (0, 3)
    np.testing.assert_allclose(u.value, [[0.3, 0.1], [0.0, 1.0]])
    assert len(solution.structures(empty)) == 0
    assert [len(found) for found in solution.structures(ragged)] == [0, 1]
    np.testing.assert_allclose(solution.vjp(np.ones(4))[0], [1, 1, 0, 0], atol=1e-12)


def test_a_variable_may_fill_several_slots_of_a_factor() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.2, 0.9, 0.4]))
    graph.add(Xor(stack([u[0], u[0], u[1]])))
    graph.add(Xor(stack([u[2], ~u[2]])))
    solution = graph.solve(tol=1e-10)
    assert solution.ok
    np.testing.assert_allclose(u.value, [0.08, 0.84, 0.4], atol=1e-9)
    gradient, _ = solution.vjp(np.array([1.0, 0.0, 1.0]))
    np.testing.assert_allclose(gradient, [0.2, -0.4, 1.0], atol=1e-9)


def test_minus_infinity_forbids() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(4, 6))
    forbidden = np.zeros((4, 6), dtype=bool)
    forbidden[[0, 1, 2, 3, 0], [0, 2, 4, 0, 5]] = True
    graph, u = matching(np.where(forbidden, -np.inf, scores))
    solution = graph.solve(tol=1e-10)
    assert solution.ok
    graph = FactorGraph()
    v = graph.variable_from(scores)
    graph.add(Xor(v, mask=~forbidden))
    graph.add(AtMostOne(v, axis=0, mask=~forbidden))
    expected = graph.solve(tol=1e-10)
    np.testing.assert_allclose(u.value[~forbidden], v.value[~forbidden], atol=1e-9)
    assert (u.value[forbidden] == 0).all()
    d = rng.normal(size=24)
    gradient = solution.vjp(d)[0].reshape(4, 6)
    expected_gradient = expected.vjp(d)[0].reshape(4, 6)
    np.testing.assert_allclose(gradient[~forbidden], expected_gradient[~forbidden], atol=1e-8)
    np.testing.assert_allclose(gradient[forbidden], 0, atol=1e-15)


@pytest.mark.parametrize("factor", ["Xor", "Polytope"])
def test_a_forbidden_negated_slot_is_on(factor: str) -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.2, -np.inf, 0.4]))
    slots = stack([u[0], ~u[1], u[2]])
    graph.add(Xor(slots) if factor == "Xor" else Polytope(slots, np.eye(3)))
    solution = graph.solve()
    assert solution.ok
    np.testing.assert_array_equal(u.value, [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(solution.vjp(np.ones(3))[0], np.zeros(3))


@pytest.mark.parametrize("factor", ["Pair", "Polytope"])
def test_minus_infinity_forbids_an_additional(factor: str) -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([0.9, 0.8]))
    score = np.array([-np.inf])
    if factor == "Pair":
        made: Any = graph.add(Pair(u[0], u[1], score[0]))
    else:
        made = graph.add(Polytope(u, *judges.pair(), score))
    solution = graph.solve()
    assert solution.ok
    np.testing.assert_allclose(u.value, [0.55, 0.45])
    np.testing.assert_allclose(graph.additionals_of(made), np.zeros(np.shape(made.additionals)))
    np.testing.assert_allclose(solution.objective, 0.9 * 0.55 + 0.8 * 0.45 - 0.5 * 0.505)
    np.testing.assert_allclose(solution.vjp(np.array([1.0, 0.0]))[0], [0.5, -0.5])


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e8, 1e16, 1e100, 1e160, 1e300])
def test_extreme_scores_end(scale: float) -> None:
    rng = np.random.default_rng(2)
    graph, u = matching(scale * rng.normal(size=(3, 4)))
    oracle_only, v = FactorGraph(), None
    v = oracle_only.variable_from(scale * np.array([1.0, 0.5, -1.0]))
    oracle_only.add(Polytope(v, judges.xor(3)[0]))
    oracle_only.add(Polytope(v[:2], judges.at_most_one(2)[0]))
    for one, views in ((graph, u), (oracle_only, v)):
        solution = one.solve(max_iter=3000)
        assert solution.ok
        if scale >= 1e8:
            np.testing.assert_allclose(views.value, np.round(views.value), atol=1e-6)


# -------------------------------------------------------------------- statuses


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


# -------------------------------------------------------------------- repeatability


def results(solution: Solution, d: FloatArray) -> list[FloatArray]:
    """Return everything that must repeat bit for bit."""
    gradient, extra = solution.vjp(d)
    return [
        solution.values,
        solution.objective,
        solution.iterations,
        solution.primal_residual,
        gradient,
        *solution.additionals,
        *extra,
    ]


def test_solving_again_changes_no_bit() -> None:
    for seed in range(5):
        drawn = random_graph(np.random.default_rng(seed), 8)
        d = np.random.default_rng(seed).normal(size=len(drawn.eta))
        graph, _, _ = drawn.build()
        first = results(graph.solve(max_iter=5000), d)
        again = results(graph.solve(max_iter=5000), d)
        for x, y in zip(first, again, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.compiled
def test_threads_change_no_bit() -> None:
    rng = np.random.default_rng(8)
    scores, weights = rng.normal(size=(500, 9, 9)), rng.normal(size=500)
    lengths = rng.integers(2, 10, size=500)
    d = rng.normal(size=scores.size)
    found = []
    for threads in (1, 2, 3):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(DepTree(u, lengths=lengths))
        graph.add(Budget(u, 2, axis=-2))
        graph.add(Pair(u[:, 0, 1], u[:, 1, 0], weights))
        solution = graph.solve(threads=threads)
        assert graph.plan(threads).threads == threads
        assert solution.ok
        found.append(results(solution, d))
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.compiled
@pytest.mark.parametrize("attempt", range(20))
def test_threads_keep_to_their_components(attempt: int) -> None:
    """Two threads once wrote to each other's probes: one run in three had other bits somewhere."""
    scores = np.random.default_rng(0).normal(size=(128, 8, 14))
    found = []
    for threads in (1, 2):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=1))
        found.append(results(graph.solve(threads=threads), np.ones(scores.size)))
    for x, y in zip(*found, strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_order_of_declarations_matters_little() -> None:
    scores = np.random.default_rng(9).normal(size=(5, 6))
    graph, u = matching(scores)
    graph.solve(tol=1e-10)
    other = FactorGraph()
    v = other.variable_from(scores)
    other.add(AtMostOne(v, axis=0))
    for i in (3, 1, 0, 4, 2):
        other.add(Xor(v[i, ::-1]))
    other.solve(tol=1e-10)
    np.testing.assert_allclose(u.value, v.value, atol=1e-9)


# -------------------------------------------------------------------- what a solution says


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
    with pytest.raises(ValueError, match="not of this graph"):
        graph.additionals_of(Or(u))


def test_repr() -> None:
    graph, _ = matching(np.eye(3))
    assert repr(graph) == "FactorGraph(9 variables, 2 factors)"
    assert repr(graph.solve()) == "Solution(9 variables; components: 1 SOLVED)"


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
