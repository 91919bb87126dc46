"""The run that looks for missed assignments judges what it finds."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("highspy")

import stress_answers  # noqa: E402
from lpsmap import FactorGraph, Nand, Sequence, Xor  # noqa: E402
from stress_answers import Mixed, answer, draw_mixed, meets_rows  # noqa: E402


def test_a_seed_draws_one_graph() -> None:
    one, other = draw_mixed(30), draw_mixed(30)
    assert one.words == other.words
    np.testing.assert_array_equal(one.eta, other.eta)


def test_an_answer_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stress_answers, "SOON", 300.0)  # however slow the machine
    assert answer(30)["outcome"] == "found"


def test_rows_tell_whether_a_graph_has_an_assignment() -> None:
    eta = np.zeros((2, 2))
    graph = FactorGraph()
    u = graph.variable_from(eta)
    graph.add(Sequence(u, np.zeros((2, 2))))
    graph.add(Xor(u.T))
    assert meets_rows(Mixed(graph, eta, "")) == (True, True)
    graph.add(Nand(u[:, 0]))
    assert meets_rows(Mixed(graph, eta, "")) == (True, True)
    graph.add(Xor(u.reshape(-1)))
    assert meets_rows(Mixed(graph, eta, "")) == (False, True)
