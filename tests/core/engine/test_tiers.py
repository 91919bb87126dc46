"""Kernels are interpreted while that is faster than compiling them: the answers are the same."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from lpsmap_core import ConvergenceWarning, Factor, FactorGraph, kernel
from lpsmap_core.engine.status import Status
from lpsmap_core.plugins.registry import installed
from lpsmap_core.testing.graphs import declared_again
from lpsmap_jit import tiers
from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.by_address import record_at
from lpsmap_jit.interrupts import Watch, interrupted
from lpsmap_jit.memory import hold
from lpsmap_jit.tiers import interpreted, interprets
from sound_types import OneOf

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.skipif(not tiers.CAN_INTERPRET, reason="interpreted kernels need NumPy 2"),
]


def _matching(graph: FactorGraph, seed: int) -> None:
    u = graph.variable_from(np.random.default_rng(seed).standard_normal((4, 5)))
    graph.add(installed().factors["Xor"].value(u))
    graph.add(installed().factors["AtMostOne"].value(u.T[::-1]))
    graph.add(installed().factors["Or"].value(~u[:2]))


def _tree(graph: FactorGraph, seed: int) -> None:
    u = graph.variable_from(np.random.default_rng(seed).standard_normal((5, 5)))
    graph.add(installed().factors["DepTree"].value(u, projective=True))
    graph.add(installed().factors["Budget"].value(u, 3))


def _chain(graph: FactorGraph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    u = graph.variable_from(0.01 * rng.standard_normal((2, 4, 3)))
    graph.add(installed().factors["Sequence"].value(u, 0.01 * rng.standard_normal((2, 3, 3, 3))))


def _python_oracle(graph: FactorGraph, seed: int) -> None:
    u = graph.variable_from(np.random.default_rng(seed).standard_normal((4, 3)))
    graph.add(OneOf(u))
    graph.add(OneOf(u[:, ::2]))


class Switching(OneOf):
    """Ends the interpretation of kernels at a call of its oracle."""

    compile_at = calls = 0

    def solve_map(self, eta_u: FloatArray, eta_v: FloatArray) -> Any:
        type(self).calls += 1
        if self.calls == self.compile_at:
            tiers.compile_now()
        return super().solve_map(eta_u, eta_v)


GRAPHS = {f.__name__.strip("_"): f for f in (_matching, _tree, _chain, _python_oracle)}


def _graph(name: str, seed: int = 0) -> FactorGraph:
    graph = FactorGraph()
    GRAPHS[name](graph, seed)
    return graph


@pytest.mark.parametrize("name", GRAPHS)
class TestSameAnswers:
    def test_solution_and_derivative(self, name: str) -> None:
        graph = _graph(name)
        with interpreted():
            found = graph.solve(trace=True)
        wanted = _graph(name).solve()
        assert found.ok
        np.testing.assert_array_equal(found.status, wanted.status)
        np.testing.assert_allclose(found.values, wanted.values, atol=1e-9)
        d = np.random.default_rng(1).standard_normal(found.values.shape)
        np.testing.assert_allclose(found.vjp(d)[0], wanted.vjp(d)[0], atol=1e-7)
        assert (found.error_bound <= wanted.error_bound + 1e-9).all()
        for factor in graph.factors:
            mean = sum(s.probability for s in _first(found, factor))
            assert math.isclose(mean, 1.0, abs_tol=1e-9)

    def test_a_compiled_solve_starts_from_an_interpreted_one(self, name: str) -> None:
        graph = _graph(name)
        with interpreted():
            found = graph.solve()
        again = graph.solve(warm_start=found)
        np.testing.assert_allclose(again.values, found.values, atol=1e-9)

    def test_a_solve_begins_interpreted_and_ends_compiled(self, name: str) -> None:
        def built(compile_at: int) -> FactorGraph:
            graph, oracle = _graph(name), type("Oracle", (Switching,), {"compile_at": compile_at})
            graph.add(oracle(graph.blocks[0].reshape(-1)[:2]))
            return graph

        wanted = built(0).solve()
        for compile_at in (1, 4):
            with interpreted():
                found = built(compile_at).solve()
                assert not interprets()
            np.testing.assert_array_equal(found.status, wanted.status)
            np.testing.assert_allclose(found.values, wanted.values, atol=1e-9)
            d = np.random.default_rng(1).standard_normal(found.values.shape)
            np.testing.assert_allclose(found.vjp(d)[0], wanted.vjp(d)[0], atol=1e-7)

    def test_lp_map(self, name: str) -> None:
        graph = _graph(name)
        with interpreted():
            found = graph.solve_map()
        wanted = _graph(name).solve_map()
        np.testing.assert_allclose(found.objective, wanted.objective, atol=1e-6)
        decoded, best = found.decode(), wanted.decode()
        np.testing.assert_allclose(decoded.score, best.score, atol=1e-6)


def _types() -> dict[str, type[Factor]]:
    return {name: r.value for name, r in installed().factors.items() if r.value is not None}


@pytest.mark.slow
@pytest.mark.parametrize("name", _types())
def test_every_type_has_the_same_answers(name: str) -> None:
    rng = np.random.default_rng(0)
    for factor in _types()[name].examples():
        shape = (2, factor.n_factors, factor.n_additionals)
        scores = rng.standard_normal((2, int(factor.offsets[-1])))
        scores[0] *= 0.01
        again = declared_again(factor, scores, rng.standard_normal(shape))
        wanted = again.graph.solve()
        with interpreted():
            found = again.graph.solve()
        np.testing.assert_array_equal(found.status, wanted.status)
        np.testing.assert_allclose(found.values, wanted.values, atol=1e-9)
        d = rng.standard_normal(found.values.shape)
        products = [s.vjp(d) for s in (found, wanted)]
        for one, other in zip(*[[p, *rest] for p, rest in products], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def _first(solution, factor: Factor):
    return solution.structures(factor)[(0,) * len(factor.batch_shape)]


def _never_cached(function):
    """Return a kernel that no process has compiled."""
    made = kernel(function)
    made._was_cached = False
    return made


class Numbers(NamedTuple):
    values: FloatArray


numbers_at = record_at(Numbers)


class TestPatience:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with interpreted():
            monkeypatch.setattr(tiers._tier, "left", 60.0)
            yield

    @pytest.fixture
    def total(self):
        @_never_cached
        def total(x):
            return x.sum()

        return total

    def test_what_is_small_and_not_compiled_is_interpreted(self, total) -> None:
        for _ in range(3):
            assert total(np.ones(3)) == 3.0
        assert interprets()
        assert not total.overloads

    def test_only_processor_time_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process that waits for its turn on a busy machine does not compile for that."""

        @_never_cached
        def waits(n):
            for _ in range(n):
                time.sleep(0.02)

        @_never_cached
        def works(n):
            until = time.thread_time() + 0.01 * n
            while time.thread_time() < until:
                pass

        monkeypatch.setattr(tiers._tier, "left", 0.05)
        waits(5)
        assert interprets()
        works(10)
        assert not interprets()

    def test_what_is_large_is_compiled_and_all_that_follows(self, total) -> None:
        assert total(np.ones(tiers.MAX_NUMBERS + 1)) == tiers.MAX_NUMBERS + 1
        assert not interprets()
        assert total.overloads

    def test_records_count_as_arguments(self) -> None:
        @_never_cached
        def total(handle):
            return numbers_at(handle).values.sum()

        assert total(hold(Numbers(np.ones(3))).handle) == 3.0
        assert interprets()
        large = hold(Numbers(np.ones(tiers.MAX_NUMBERS)))
        assert total(large.handle) == tiers.MAX_NUMBERS
        assert not interprets()

    @pytest.mark.parametrize("where", ["overloads", "_was_cached"])
    def test_what_is_compiled_is_not_interpreted(self, total, where: str) -> None:
        if where == "overloads":
            total.compile("(float64[::1],)")
        else:
            total._was_cached = True
        assert total(np.ones(3)) == 3.0
        assert not interprets(), "nor are the others"

    def test_time_counts_together(self, total, monkeypatch: pytest.MonkeyPatch) -> None:
        times = iter(range(0, 1000, 25))
        monkeypatch.setattr(time, "thread_time", lambda: next(times))
        seen = []
        for _ in range(5):
            total(np.ones(3))
            seen.append(interprets())
        assert seen == [True, True, False, False, False]

    def test_kernels_that_an_interpreted_one_calls_are_interpreted(self, total) -> None:
        @_never_cached
        def twice(x):
            return 2.0 * total(x)

        assert twice(np.ones(3)) == 6.0
        assert not total.overloads

    def test_threads_take_turns(self, total) -> None:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(total, [np.ones(3)] * 100)) == [3.0] * 100
        assert not total.overloads

    @pytest.mark.parametrize("kind", [KeyError, IndexError, KeyboardInterrupt])
    def test_errors_come_out_at_once(self, kind: type[BaseException]) -> None:
        tried = []

        @_never_cached
        def failing():
            tried.append(interprets())
            raise kind

        with pytest.raises(kind):
            failing()
        assert tried == [True]
        assert interprets()

    @pytest.mark.parametrize("method", ["solve_map", "vertex"])
    @pytest.mark.parametrize("kind", [IndexError, TypeError])
    def test_errors_of_oracles_come_out_at_once(self, kind: type[Exception], method: str) -> None:
        calls = []

        def raise_it(*arguments: object) -> None:
            calls.append(None)
            raise kind("of an oracle")

        wrong = type("Wrong", (OneOf,), {method: raise_it})
        graph = FactorGraph()
        u = graph.variable_from([0.1, 0.2, 0.3])
        graph.add(wrong(u))
        graph.add(installed().factors["Xor"].value(u[:2]))
        with pytest.raises(kind, match="of an oracle"):
            graph.solve()
        assert len(calls) == 1

    def test_interpreted_kernels_take_no_time(self) -> None:
        """As compilation, in whose place they are."""
        seen = []

        @_never_cached
        def slow():
            time.sleep(0.3)
            seen.append(interrupted())

        with Watch(0.2):
            slow()
            assert seen == [False]
            assert not interrupted()
            time.sleep(0.25)
            assert interrupted()

    def test_what_lies_between_kernels_takes_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiers._tier, "left", math.inf)
        with pytest.warns(ConvergenceWarning, match="time ran out"):
            assert _graph("chain").solve(max_time=1e-9).status[0] is Status.TIME_LIMIT

    @pytest.mark.parametrize("words", ["soon", "-1", "nan"])
    def test_the_environment_has_to_say_seconds(
        self, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tiers._tier, "left", None)
        monkeypatch.setenv(tiers.COMPILE_AFTER, words)
        with pytest.raises(ValueError, match=f"LPSMAP_COMPILE_AFTER: got '{words}'; expected sec"):
            _graph("matching").solve()


FIRST = """
import warnings
warnings.simplefilter("error")
import numpy as np
from lpsmap_core import FactorGraph
from lpsmap_core.plugins.registry import installed
graph = FactorGraph()
u = graph.variable_from(np.random.default_rng(0).standard_normal((4, 5)))
graph.add(installed().factors["Xor"].value(u))
graph.add(installed().factors["AtMostOne"].value(u, axis=0))
solution = graph.solve()
solution.vjp(solution.values)
assert solution.ok
print(solution.values.sum())
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [(tiers.COMPILE_AFTER, "60"), ("LPSMAP_DISABLE_JIT", "1"), ("NUMBA_DISABLE_JIT", "1")],
)
def test_a_first_small_solve_compiles_nothing(tmp_path: Path, name: str, value: str) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), name: value}
    done = subprocess.run(
        [sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert math.isclose(float(done.stdout), 4.0)
    assert not list(tmp_path.rglob("*.nbc"))
