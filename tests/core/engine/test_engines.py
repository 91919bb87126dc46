"""The seam between engines and all else: a second engine behind it, and who is asked."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dense_engine
from lpsmap import AtMostOne, ConvergenceWarning, FactorGraph, Pair, Solution, Status, Xor
from lpsmap_core import hookimpl
from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import Options
from lpsmap_core.plugins.registry import DuplicateNameError, installed, registered
from random_graphs import RandomGraph, random_graph


@pytest.fixture(autouse=True)
def dense() -> Iterator[None]:
    """The second engine is offered by its hook."""
    with registered(dense_engine):
        yield


def matching() -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[1.0, 0.8, 0.0], [0.9, 1.0, 0.4]]))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    graph.add(Pair(u[0, 0], u[1, 2], 0.3))
    return graph


def drawn(seed: int) -> RandomGraph:
    rng = np.random.default_rng(seed)
    return random_graph(rng, int(rng.integers(1, 6)))


@pytest.mark.parametrize("seed", range(12))
def test_engines_agree(seed: int) -> None:
    graph = drawn(seed)
    ours, theirs = graph.build()[0], graph.build()[0]
    own = ours.solve(tol=1e-10, max_iter=20_000)
    other = theirs.solve(tol=1e-10, max_iter=20_000, engine="dense")
    np.testing.assert_allclose(other.values, own.values, rtol=0, atol=1e-7)
    np.testing.assert_allclose(other.objective, own.objective, rtol=1e-6, atol=1e-6)
    d = np.random.default_rng(seed).normal(size=len(own.values))
    np.testing.assert_allclose(other.vjp(d)[0], own.vjp(d)[0], rtol=0, atol=1e-5)


def test_structures_of_another_engine_explain_its_marginals() -> None:
    graph = matching()
    solution = graph.solve(tol=1e-9, engine="dense")
    (xor, _, pair) = graph.factors
    for row, found in zip(solution.values.reshape(2, 3), solution.structures(xor), strict=True):
        assert found.probabilities.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(found.probabilities @ found.variables, row, atol=1e-8)
    (found,) = solution.structures(pair)
    np.testing.assert_allclose(
        found.probabilities @ found.additionals, graph.additionals_of(pair).reshape(1), atol=1e-8
    )


def test_what_an_engine_does_not_say_is_unknown() -> None:
    graph = matching()
    solution = graph.solve(tol=1e-9, engine="dense", trace=True)
    assert np.isinf(solution.gap).all()
    assert np.isinf(solution.error_bound).all()
    assert solution.contradictions == {}
    assert solution.trace is None
    again = graph.solve(warm_start=solution)  # which starts from nothing
    assert (again.iterations == matching().solve().iterations).all()
    own = again.start_for(graph._laid_out())
    assert graph.solve(warm_start=again, engine="dense").ok
    assert own is not None
    assert own.known.all()


def test_statuses_are_those_of_the_engine() -> None:
    graph = matching()
    with pytest.warns(ConvergenceWarning):
        solution = graph.solve(max_iter=3, engine="dense")
    assert list(solution.status) == [Status.ITERATION_LIMIT]
    assert (solution.iterations == 3).all()


def test_forbidden_variables_and_batches_of_another_engine() -> None:
    graph = FactorGraph()
    scores = np.array([[0.3, -np.inf, 0.1], [np.nan, 0.0, 0.0], [1.0, 0.9, 0.2]])
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    with pytest.warns(ConvergenceWarning, match="A score is NaN"):
        solution: Solution = graph.solve(tol=1e-9, engine="dense")
    np.testing.assert_allclose(u.value[[0, 2]], [[0.6, 0.0, 0.4], [0.55, 0.45, 0.0]], atol=1e-7)
    assert np.isnan(u.value[1]).all()
    assert np.isfinite(solution.objective[[0, 2]]).all()


# -------------------------------------------------------------------- the choice


def test_a_plan_says_which_engine_and_why() -> None:
    plan = matching().plan()
    assert (plan.engine, plan.reason) == ("compiled", "serves every graph")
    assert "\nengine: compiled, which serves every graph\n" in repr(plan)
    plan = matching().plan(engine="dense")
    assert (plan.engine, plan.reason) == ("dense", "was requested")
    assert [row.solved_by for row in plan.components] == ["dense"]
    assert plan.factors == plan.shares == ()


def test_core_offers_its_engine_as_plugins_do() -> None:
    assert installed().engines["compiled"].value is CompiledEngine
    expected = matching().solve().values
    np.testing.assert_array_equal(matching().solve(engine="compiled").values, expected)


@pytest.mark.parametrize("name", ["tensors", None, 3])
def test_no_such_engine(name: object) -> None:
    for verb in (matching().solve, matching().plan):
        with pytest.raises(ValueError, match=f"^engine: got {name!r}; expected one of ") as raised:
            verb(engine=name)  # type: ignore[operator]
        for known in ("auto", "compiled", "tensor", "tensor-fixed", "messages", "dense"):
            assert known in str(raised.value)


def test_two_engines_of_one_name() -> None:
    class Other(dense_engine.DenseEngine):
        pass

    other = types.ModuleType("other")
    other.lpsmap_engines = hookimpl(lambda: [Other])  # type: ignore[attr-defined]
    other.lpsmap_api_version = 3  # type: ignore[attr-defined]
    with registered(other), pytest.raises(DuplicateNameError, match="dense is claimed by two"):
        matching().solve(engine="dense")


def test_an_engine_refuses_what_it_cannot_solve() -> None:
    part = matching()._laid_out().part
    words = dense_engine.DenseEngine().refuses(part, Options(quadratic=0.0))
    assert words is not None and "needs the quadratic term" in words

    class Picky(dense_engine.DenseEngine):
        name = "picky"

        def refuses(self, part: object, options: object) -> str:
            return "engine: 'picky' solves nothing."

    picky = types.ModuleType("picky")
    picky.lpsmap_engines = hookimpl(lambda: [Picky])  # type: ignore[attr-defined]
    picky.lpsmap_api_version = 3  # type: ignore[attr-defined]
    with registered(picky), pytest.raises(ValueError, match="'picky' solves nothing"):
        matching().solve(engine="picky")


class Faulty(dense_engine.DenseEngine):
    """Solves, and then returns what a test has changed."""

    name = "faulty"
    changed: dict[str, object] = {}

    def solve(self, *arguments: Any, **options: Any) -> Any:
        solved = super().solve(*arguments, **options)
        for name, value in self.changed.items():
            if name == "all":
                return value
            setattr(solved, name, value)
        return solved


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"all": None}, "an object of type NoneType; expected a SolvedGraph"),
        (
            {"marginals": lambda: np.full(6, np.nan)},
            "marginals with nan in component 0, whose status is",
        ),
        (
            {"marginals": lambda: np.full(6, 2.0)},
            "marginals with 2 in component 0, whose status is",
        ),
        ({"marginals": lambda: np.zeros(3)}, r"marginals of shape \(3,\) .*floats of shape \(6,\)"),
        ({"marginals": lambda: [0.5] * 6}, r"marginals of shape \(6,\) .*, in a list; expected"),
        ({"additionals": lambda: np.zeros(2)}, r"additionals of shape \(2,\)"),
        ({"status": lambda: [Status.CONVERGED]}, r"status \[.*; expected an array of 1 Status"),
        ({"status": lambda: ["done"]}, "status .*; expected an array of 1 Status"),
        ({"iterations": 3}, "iterations of shape .*expected shape"),
    ],
)
def test_an_engine_that_returns_something_else_is_named(
    changed: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "changed", changed)
    plugin = types.ModuleType("faulty")
    plugin.lpsmap_engines = hookimpl(lambda: [Faulty])  # type: ignore[attr-defined]
    plugin.lpsmap_api_version = 3  # type: ignore[attr-defined]
    with registered(plugin), pytest.raises(RuntimeError, match=f"engine 'faulty' returned {words}"):
        matching().solve(engine="faulty")


def test_an_engine_that_raises_is_called_once() -> None:
    calls: list[None] = []

    class Raises(dense_engine.DenseEngine):
        name = "raises"

        def solve(self, *arguments: Any, **options: Any) -> Any:
            calls.append(None)
            raise TypeError("a fault of the engine")

    plugin = types.ModuleType("raises")
    plugin.lpsmap_engines = hookimpl(lambda: [Raises])  # type: ignore[attr-defined]
    plugin.lpsmap_api_version = 3  # type: ignore[attr-defined]
    with registered(plugin), pytest.raises(TypeError, match="a fault of the engine"):
        matching().solve(engine="raises")
    assert len(calls) == 1


def test_a_bound_of_no_number_is_the_engines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that of the scores, as the status of NaN would have it."""
    monkeypatch.setattr(Faulty, "changed", {"assignment_bound": lambda: np.full(1, np.nan)})
    plugin = types.ModuleType("faulty")
    plugin.lpsmap_engines = hookimpl(lambda: [Faulty])  # type: ignore[attr-defined]
    plugin.lpsmap_api_version = 3  # type: ignore[attr-defined]
    graph = FactorGraph()
    u = graph.variable_from([1.0, 1.0, 1.0])
    graph.add(AtMostOne(u[np.array([[0, 1], [1, 2], [2, 0]])]))  # its relaxation is fractional
    with registered(plugin), pytest.raises(RuntimeError, match="assignment_bound returned .*nan"):
        graph.solve(engine="faulty").decode()
