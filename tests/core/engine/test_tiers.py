"""Kernels are interpreted while that is sooner than to compile them: the answers are the same."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lpsmap_core import ConvergenceWarning, Factor, FactorGraph, kernel
from lpsmap_core.engine.compiled import InterpretedPart, SolvedPart
from lpsmap_core.engine.status import Status
from lpsmap_core.plugins.registry import installed
from lpsmap_core.testing.graphs import declared_again
from lpsmap_jit import tiers
from lpsmap_jit.tiers import interpreted, interprets, unless_slow
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
        assert type(found.solved) is InterpretedPart
        assert type(wanted.solved) is SolvedPart
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
        assert type(again.solved) is SolvedPart
        np.testing.assert_allclose(again.values, found.values, atol=1e-9)

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


@kernel
def failing(kind):
    raise kind


class TestPatience:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiers._Patience, "left", 60.0)

    class Nothing:
        """A kernel that was never compiled."""

        compiled = False

        def is_compiled(self) -> bool:
            return self.compiled

    def test_interprets_what_is_small_and_not_compiled(self) -> None:
        kernel = self.Nothing()
        assert unless_slow(interprets, kernel, lambda: tiers.LARGEST_INTERPRETED)
        assert not unless_slow(interprets, kernel, lambda: tiers.LARGEST_INTERPRETED + 1)
        assert not interprets()
        kernel.compiled = True
        assert not unless_slow(interprets, kernel, lambda: 0)
        kernel.compiled = False
        assert not unless_slow(interprets, kernel, lambda: 0), "once compiled, always compiled"

    def test_time_counts_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: now)

        def work() -> bool:
            nonlocal now
            now += 25.0
            return interprets()

        found = [unless_slow(work, self.Nothing(), lambda: 0) for _ in range(5)]
        assert found == [True, True, True, False, False]

    def test_what_takes_too_long_is_called_again_with_compiled_kernels(self) -> None:
        tried = []

        def work() -> str:
            tried.append(interprets())
            if interprets():
                raise tiers.TooSlow
            return "compiled"

        assert unless_slow(work, self.Nothing(), lambda: 0) == "compiled"
        assert tried == [True, False]

    def test_errors_of_kernels_come_out_at_once(self) -> None:
        tried = []

        def work() -> None:
            tried.append(interprets())
            failing(IndexError)

        with pytest.raises(IndexError):
            unless_slow(work, self.Nothing(), lambda: 0)
        assert tried == [True]

    @pytest.mark.parametrize("kind", [KeyError, IndexError])
    def test_other_errors_come_out_at_once(self, kind: type[Exception]) -> None:
        tried = []

        def work() -> None:
            tried.append(interprets())
            raise kind("of a factor type")

        with pytest.raises(kind, match="of a factor type"):
            unless_slow(work, self.Nothing(), lambda: 0)
        assert tried == [True]
        assert not interprets()

    @pytest.mark.parametrize("method", ["solve_map", "vertex"])
    @pytest.mark.parametrize("kind", [IndexError, TypeError])
    def test_errors_of_oracles_come_out_at_once(
        self, kind: type[Exception], method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from lpsmap_core.engine import compiled

        monkeypatch.setattr(compiled, "average_and_judge", self.Nothing())
        calls = []

        def raise_it(*arguments: object) -> None:
            calls.append(interprets())
            raise kind("of an oracle")

        wrong = type("Wrong", (OneOf,), {method: raise_it})
        graph = FactorGraph()
        u = graph.variable_from([0.1, 0.2, 0.3])
        graph.add(wrong(u))
        graph.add(installed().factors["Xor"].value(u[:2]))
        with pytest.raises(kind, match="of an oracle"):
            graph.solve()
        assert calls == [True]

    def test_a_solve_that_takes_too_long_is_compiled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from lpsmap_core.engine import compiled

        monkeypatch.setattr(compiled, "average_and_judge", self.Nothing())
        monkeypatch.setattr(tiers._Patience, "left", 1e-9)
        built = _graph("matching")
        found = built.solve()
        assert type(found.solved) is SolvedPart
        np.testing.assert_array_equal(found.values, _graph("matching").solve().values)

    def test_a_limit_of_time_is_for_compiled_kernels(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from lpsmap_core.engine import compiled

        monkeypatch.setattr(compiled, "average_and_judge", self.Nothing())
        with pytest.warns(ConvergenceWarning, match="time ran out"):
            found = _graph("chain").solve(max_time=1e-9)
        assert type(found.solved) is SolvedPart
        assert found.status[0] is Status.TIME_LIMIT

    @pytest.mark.parametrize("words", ["soon", "-1", "nan"])
    def test_the_environment_has_to_say_seconds(
        self, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tiers._Patience, "left", None)
        monkeypatch.setenv(tiers.PATIENCE, words)
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
    [(tiers.PATIENCE, "60"), ("LPSMAP_DISABLE_JIT", "1"), ("NUMBA_DISABLE_JIT", "1")],
)
def test_a_first_small_solve_compiles_nothing(tmp_path: Path, name: str, value: str) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), name: value}
    done = subprocess.run(
        [sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert math.isclose(float(done.stdout), 4.0)
    assert not list(tmp_path.rglob("*.nbc"))
