"""Factor graphs: the verbs, their arguments, and graphs at the corners of what is allowed."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import judges
from forks import Server
from lpsmap import AtMostOne, Budget, FactorGraph, Pair, Xor
from lpsmap_core import stack
from lpsmap_jit.threads import default_threads
from matchings import matching
from random_graphs import Polytope

FloatArray = npt.NDArray[np.float64]


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


def test_verbose_shows_on_standard_error_where_logging_is_not_set_up(warm_server: Server) -> None:
    code = (
        "from lpsmap_core import FactorGraph; import logging; graph = FactorGraph(); "
        "graph.variable((2,)); graph.solve(verbose=True); "
        "logger = logging.getLogger('lpsmap'); assert not logger.handlers and not logger.level; "
        "logging.basicConfig(level=logging.WARNING); graph.solve(verbose=1)"
    )
    done = warm_server.run(code)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
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


def test_a_declaration_that_is_not_added_is_reported_once() -> None:
    graph = FactorGraph()
    u = graph.variable((2, 3))
    graph.add(Xor(u))
    AtMostOne(u, axis=0)
    with pytest.warns(UserWarning, match=r"not added, .*: AtMostOne over shape \(3, 2\)\."):
        graph.solve()
    graph.solve()  # without a second warning
    graph.add(Budget(u[0], 1))
    graph.plan()


def test_a_declaration_that_fails_may_be_declared_again() -> None:
    graph = FactorGraph()
    u = graph.variable((2, 3))
    with pytest.raises(ValueError, match="budget"):
        graph.add(Budget(u, -1))
    graph.add(Budget(u, 1))
    graph.solve()
