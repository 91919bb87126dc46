"""Engines whose arrays are of another library than NumPy."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
import pytest

import dense_engine
from lpsmap import AtMostOne, ConvergenceWarning, FactorGraph, Pair, Status, Xor
from lpsmap_core import Backend, Engine, Options, SolvedGraph, hookimpl, registered
from lpsmap_core.api import BoolArray, Part
from lpsmap_core.engine.protocol import NumpyBackend


class Boxed:
    """An array of a library that does not convert to NumPy by itself."""

    def __init__(self, numbers: Any, device: str) -> None:
        self.numbers, self.device = numbers, device

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a boxed array was read without its backend")


class BoxedBackend(Backend):
    """Boxes on two devices."""

    name = "boxes"

    def devices(self) -> Sequence[str]:
        """Return both."""
        return ["first", "second"]

    def asarray(self, array: Any, device: str) -> Boxed:
        """Return an array in a box."""
        return Boxed(array.copy(), device)

    def to_numpy(self, array: Any) -> Any:
        """Return what is in a box; arrays of NumPy are none."""
        assert isinstance(array, Boxed)
        return array.numbers


class SolvedBoxes(SolvedGraph):
    """The dense engine's solution, in boxes."""

    def __init__(self, inner: dense_engine.DenseSolution) -> None:
        self.inner, self.part, self.quadratic = inner, inner.part, inner.quadratic
        self.iterations = inner.iterations
        self.primal_residual, self.dual_residual = inner.primal_residual, inner.dual_residual

    def status(self) -> Any:
        """Return statuses, in NumPy."""
        return self.inner.status()

    def marginals(self) -> Any:
        """Return a box of float32, which the caller must not write to."""
        numbers = self.inner.marginals().astype(np.float32)
        numbers.setflags(write=False)
        return Boxed(numbers, "first")

    def additionals(self) -> Any:
        """Return a box."""
        return Boxed(self.inner.additionals(), "first")

    def multiply(self, d: Any, d_v: Any, chosen: BoolArray | None, threads: int) -> Any:
        """Take and return boxes."""
        assert d.device == d_v.device == "first"
        found = self.inner.multiply(d.numbers, d_v.numbers, chosen, threads)
        return tuple(Boxed(numbers, "first") for numbers in found)

    def structures(self, b: int, rows: Any) -> Any:
        """Return structures, in NumPy."""
        return self.inner.structures(b, rows)


class BoxedEngine(Engine):
    """The dense engine, whose arrays are boxes."""

    name = "boxed"
    backend = BoxedBackend
    preferred: ClassVar[int] = 0
    """How many components it prefers, from the first."""

    def prefers(self, part: Part, options: Options) -> BoolArray | None:
        """Return the first components, if a test says so."""
        return np.arange(part.n_components) < self.preferred

    def solve(
        self, part: Part, eta: Any, eta_v: Any, skip: Any, options: Options, warm: Any = None
    ) -> SolvedGraph:
        """Solve what is in the boxes."""
        assert eta.device == eta_v.device == "first"
        given = eta.numbers, eta_v.numbers, skip, options
        return SolvedBoxes(dense_engine.DenseEngine().solve(part, *given))


@pytest.fixture(autouse=True)
def boxes() -> Iterator[None]:
    plugin = types.ModuleType("boxes")
    plugin.lpsmap_engines = hookimpl(lambda: [BoxedEngine])  # type: ignore[attr-defined]
    plugin.lpsmap_api_version = 3  # type: ignore[attr-defined]
    with registered(plugin):
        yield


SCORES = np.random.default_rng(0).normal(size=(3, 2, 3))


def matchings(scores: Any = SCORES) -> FactorGraph:
    """Return a graph of a matching an instance, each with a pair."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=1))
    graph.add(Pair(u[:, 0, 0], u[:, 1, 1], [0.5, -0.5, 0.2]))
    return graph


def test_engines_are_numpys_unless_they_say_otherwise() -> None:
    assert Engine.backend is dense_engine.DenseEngine.backend is NumpyBackend


def test_a_graph_in_numpy_gets_numpy_arrays() -> None:
    graph, own = matchings(), matchings()
    found = graph.solve(tol=1e-10, max_iter=20_000, engine="boxed")
    expected = own.solve(tol=1e-10, max_iter=20_000)
    assert found.values.dtype == np.float64
    np.testing.assert_allclose(found.values, expected.values, atol=1e-6)
    np.testing.assert_allclose(found.objective, expected.objective, atol=1e-6)
    for ours, theirs in zip(found.additionals, expected.additionals, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    found.values[:] = 0.0  # they are the caller's own
    rng = np.random.default_rng(1)
    d, d_v = rng.normal(size=18), [np.zeros(0), np.zeros(0), rng.normal(size=3)]
    for ours, theirs in zip(found.vjp(d, d_v), expected.vjp(d, d_v), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    (structures, *_) = found.structures(graph.factors[0])
    assert structures.probabilities.sum() == pytest.approx(1.0)
    assert found.start_for(graph._laid_out()) is None


def test_components_go_to_the_engine_that_prefers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoxedEngine, "preferred", 2)
    graph = matchings()
    assert {row.solved_by: row.count for row in graph.plan().components} == {"boxed": 2, "ADMM": 1}
    found = graph.solve(tol=1e-10, max_iter=20_000)
    expected = matchings().solve(engine="compiled", tol=1e-10)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-6)
    assert list(np.isinf(found.gap)) == [True, True, False]
    d = np.random.default_rng(1).normal(size=18)
    np.testing.assert_allclose(found.vjp(d)[0], expected.vjp(d)[0], atol=1e-5)


def test_bad_scores_and_faults_are_told_as_for_other_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = SCORES.copy()
    scores[1, 0, 0] = np.nan
    with pytest.warns(ConvergenceWarning, match="A score is NaN"):
        found = matchings(scores).solve(tol=1e-9, max_iter=20_000, engine="boxed")
    assert list(found.status == Status.NON_FINITE) == [False, True, False]
    assert np.isnan(found.values).reshape(3, 6).all(axis=1).tolist() == [False, True, False]
    monkeypatch.setattr(SolvedBoxes, "marginals", lambda _: Boxed(np.zeros(2), "first"))
    with pytest.raises(RuntimeError, match=r"engine 'boxed' returned marginals of shape \(2,\)"):
        matchings().solve(engine="boxed")
    monkeypatch.setattr(BoxedEngine, "solve", lambda *_: None)
    with pytest.raises(RuntimeError, match="engine 'boxed' returned an object of type NoneType"):
        matchings().solve(engine="boxed")
