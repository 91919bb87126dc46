"""Engines that prefer some components of a graph, beside core's for the rest."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

import dense_engine
from lpsmap import AtMostOne, ConvergenceWarning, FactorGraph, Status, Xor
from lpsmap_core import Engine, Options, SolvedGraph, hookimpl, registered
from lpsmap_core.api import Part

BoolArray = npt.NDArray[np.bool_]


class Picking(dense_engine.DenseEngine):
    """The second engine, which prefers every other component."""

    name = "picking"
    most: ClassVar[int | None] = None
    """Iterations after which it leaves what it has."""

    def prefers(self, part: Part, options: Options) -> BoolArray | None:
        """Return the components of even number."""
        return np.arange(part.n_components) % 2 == 0

    def solve(
        self, part: Part, eta: Any, eta_v: Any, skip: Any, options: Options, warm: Any = None
    ) -> SolvedGraph:
        """Solve, for a few iterations if a test says so."""
        if self.most is not None:
            options = options._replace(max_iter=self.most)
        return super().solve(part, eta, eta_v, skip, options, warm)


@pytest.fixture(autouse=True)
def picking() -> Iterator[None]:
    plugin = types.ModuleType("picking")
    plugin.lpsmap_engines = hookimpl(lambda: [Picking])  # type: ignore[attr-defined]
    plugin.lpsmap_api_version = 3  # type: ignore[attr-defined]
    with registered(plugin):
        yield


def matchings(scores: npt.ArrayLike) -> FactorGraph:
    """Return a graph of a matching an instance."""
    graph = FactorGraph()
    u = graph.variable_from(np.asarray(scores))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    return graph


SCORES = np.random.default_rng(0).normal(size=(3, 2, 3))


def test_every_engine_has_its_components() -> None:
    shared, own = matchings(SCORES), matchings(SCORES)
    found = shared.solve(tol=1e-10, max_iter=20_000)
    expected = own.solve(tol=1e-10, max_iter=20_000, engine="compiled")
    np.testing.assert_allclose(found.values, expected.values, atol=1e-7)
    np.testing.assert_allclose(found.objective, expected.objective, atol=1e-7)
    assert list(np.isinf(found.gap)) == [True, False, True]  # the second engine claims none
    d = np.random.default_rng(1).normal(size=len(found.values))
    np.testing.assert_allclose(found.vjp(d)[0], expected.vjp(d)[0], atol=1e-5)
    for ours, theirs in zip(found.structures(shared.factors[0]), SCORES.reshape(6, 3), strict=True):
        assert ours.probabilities.sum() == pytest.approx(1.0)
        assert len(theirs) == ours.variables.shape[1]


def test_cores_engine_goes_on_with_what_is_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Picking, "most", 1)
    found, expected = matchings(SCORES).solve(), matchings(SCORES).solve(engine="compiled")
    assert found.ok
    np.testing.assert_allclose(found.values, expected.values, atol=1e-6)
    assert np.isfinite(found.gap).all()


def test_a_plan_names_what_solves_each_component() -> None:
    plan = matchings(SCORES).plan()
    assert plan.reason == "gives picking what it prefers, and compiled the rest"
    assert {row.solved_by: row.count for row in plan.components} == {"picking": 2, "ADMM": 1}
    assert plan.factors == ()


def test_bad_scores_are_nobodys_component() -> None:
    scores = SCORES.copy()
    scores[0, 0, 0] = np.nan
    graph = matchings(scores)
    with pytest.warns(ConvergenceWarning, match="A score is NaN"):
        found = graph.solve(tol=1e-9)
    assert list(found.status == Status.NON_FINITE) == [True, False, False]
    assert np.isnan(found.values[:6]).all()
    assert np.isfinite(found.values[6:]).all()


def test_a_warm_start_is_for_cores_engine() -> None:
    graph = matchings(SCORES)
    again = graph.solve(warm_start=graph.solve(tol=1e-9))
    assert np.isfinite(again.gap).all()


def test_an_engine_may_refuse_a_whole_part_and_prefer_some_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Picking, "refuses", lambda *_: "engine: 'picking' takes every other one.")
    assert {row.solved_by for row in matchings(SCORES).plan().components} == {"picking", "ADMM"}
    with pytest.raises(ValueError, match="takes every other one"):
        matchings(SCORES).plan(engine="picking")


def test_an_engine_that_is_asked_for_has_the_components_that_it_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Picking, "serves", lambda _, part: np.arange(part.n_components) != 1)
    plan = matchings(SCORES).plan(engine="picking")
    assert {row.solved_by: row.count for row in plan.components} == {"picking": 2, "ADMM": 1}
    assert plan.reason.endswith("does not serve, of AtMostOne, Xor")
    found = matchings(SCORES).solve(tol=1e-10, max_iter=20_000, engine="picking")
    assert list(np.isinf(found.gap)) == [True, False, True]
    monkeypatch.setattr(Picking, "refuses", lambda *_: "engine: 'picking' is not in the mood.")
    with pytest.raises(ValueError, match="not in the mood"):
        matchings(SCORES).plan(engine="picking")


def test_a_fault_names_the_engine_of_the_component(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Picking, "solve", lambda *_: None)
    with pytest.raises(RuntimeError, match="engine 'picking' returned an object of type NoneType"):
        matchings(SCORES).solve()


def test_engines_prefer_nothing_by_default() -> None:
    assert Engine.prefers(Picking(), matchings(SCORES)._laid_out().part, Options()) is None
