"""Best assignments, corpora and commands without a pack of factors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lpsmap_core import Factor, FactorGraph
from lpsmap_core.command import cli
from lpsmap_decode import solve_many


class OneOrMore(Factor):
    """At least one variable is on."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> tuple[bool, ...]:
        on = eta_u > 0.0
        on[np.argmax(eta_u)] = True
        return tuple(on.tolist())

    def vertex(self, y: tuple[bool, ...]) -> tuple[Any, Any]:
        return np.array(y, dtype=np.float64), np.empty(0)


def triangle(seed: int) -> FactorGraph:
    """Return a graph of three literals, of which each two contradict; LP-MAP has halves."""
    graph = FactorGraph()
    u = graph.variable_from(1.0 + 0.01 * np.random.default_rng(seed).random(3))
    for pair in ([0, 1], [1, 2], [0, 2]):
        graph.add(OneOrMore(~u[pair]))
    return graph


def test_the_best_assignment_is_found_with_a_proof() -> None:
    graph = triangle(0)
    found = graph.solve_map(exact=True)
    assert found.ok
    scores = 1.0 + 0.01 * np.random.default_rng(0).random(3)
    assert found.total == pytest.approx(scores.max())


def test_many_graphs_are_solved_by_threads() -> None:
    outcomes = list(solve_many(range(3), build=triangle, task="map"))
    assert [outcome.index for outcome in outcomes] == [0, 1, 2]
    assert all(outcome.error is None for outcome in outcomes)
    assert [outcome.values[0].sum() for outcome in outcomes] == [1.0, 1.0, 1.0]


def test_a_file_is_solved_by_the_command(tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    model.write_text('{"variables": {"u": [1.0, -1.0]}, "factors": []}', encoding="utf-8")
    ended = CliRunner().invoke(cli.main, ["solve", str(model)])
    assert ended.exit_code == 0
    assert json.loads(ended.output)["variables"]["u"] == [1.0, 0.0]
