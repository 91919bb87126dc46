"""Benchmarks that step through the engine's loop take its steps."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lpsmap import ALGORITHM_1, AtMostOne, FactorGraph, Sequence, Xor

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def accelerations(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark that compares rules."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return importlib.import_module("accelerations")


def tagged() -> FactorGraph:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(3.0 * rng.standard_normal((6, 4)))
    graph.add(Sequence(u, rng.standard_normal((4, 4))))
    graph.add(AtMostOne(u[:, 1]))
    return graph


def test_a_step_of_the_benchmark_is_one_of_the_loop(accelerations: ModuleType) -> None:
    expected = tagged().solve(adapt=False, tol=1e-8).iterations
    method = accelerations.METHODS["relaxed 1.6"]
    assert [accelerations.iterations(tagged(), method, 1e-8, 2000)] == list(expected)


def test_every_rule_gets_there(accelerations: ModuleType) -> None:
    for method in accelerations.METHODS.values():
        assert accelerations.iterations(tagged(), method, 1e-6, 2000) < np.inf


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    peers = importlib.import_module("peers")
    marginals = importlib.import_module("marginals")
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    for benchmark in (peers, marginals):
        result = CliRunner().invoke(benchmark.main, ["--only", "Xor"])
        assert result.exit_code == 0
        assert "pip install entmax" in result.stdout


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_the_unrolled_algorithm_has_the_iterations_and_the_gradient_of_a_solve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    claims = importlib.import_module("claims")
    rng = np.random.default_rng(0)
    scores, direction = 2.0 * rng.standard_normal((3, 4)), rng.standard_normal((3, 4))

    def solved(**options: Any) -> tuple[FactorGraph, Any]:
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=0))
        return graph.solve(**options), u

    eta = torch.tensor(scores, requires_grad=True)
    _, u = solved(**ALGORITHM_1)
    np.testing.assert_allclose(u.value, claims.unrolled(eta, 10)[0].detach(), rtol=0, atol=1e-12)
    claims.unrolled(eta, 2000)[0].backward(torch.tensor(direction))
    solution, _ = solved(tol=1e-10)
    product, _ = solution.vjp(direction)
    np.testing.assert_allclose(product, eta.grad.reshape(-1), rtol=0, atol=1e-8)
