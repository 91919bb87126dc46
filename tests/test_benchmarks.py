"""Benchmarks that step through the engine's loop take its steps."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

from lpsmap import AtMostOne, FactorGraph, Sequence

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
