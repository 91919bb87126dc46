"""Forbidden variables cost no digits, at whatever scale the scores are."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import stress_graphs
from lpsmap import Budget, FactorGraph, Pair, Sequence, Xor
from lpsmap_core.local.finite_scores import CLOSED_FORM_MULTIPLE, ORACLE_MULTIPLE, make_finite
from lpsmap_core.plugins.registry import installed
from stress_graphs import draw_graph
from stress_judging import checked

KINDS = [
    "Alignment",
    "AndOut",
    "AtMostOne",
    "BinaryTree",
    "Bits",
    "Budget",
    "DepTree",
    "HeadAutomaton",
    "Imply",
    "Knapsack",
    "Matching",
    "Nand",
    "Or",
    "OrOut",
    "Pair",
    "Permutation",
    "SemiMarkov",
    "Sequence",
    "SequenceBudget",
    "SequenceDistance",
    "TopK",
    "Xor",
    "XorOut",
]
"""The types that were installed when the seeds below were found: graphs are drawn from all."""


@pytest.fixture(autouse=True)
def types_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {name: installed().factors[name] for name in KINDS}
    monkeypatch.setattr(stress_graphs, "installed", lambda: SimpleNamespace(factors=types))


@pytest.mark.parametrize("multiple", [CLOSED_FORM_MULTIPLE, ORACLE_MULTIPLE])
def test_a_forced_slot_outweighs_all_others(multiple: float) -> None:
    scores = np.array([3.0, -np.inf, -5.0, np.inf])
    eta_v, forbidden = np.array([2.0, -1e30]), np.array([0, 1], dtype=np.int8)
    make_finite(scores, eta_v, forbidden, multiple)
    assert scores[[0, 2]].tolist() == [3.0, -5.0]
    assert scores[3] == -scores[1] == multiple * (1 + 3 + 1 + 5 + 1 + 2)


def test_scores_without_forced_slots_are_left_alone() -> None:
    scores = np.array([3.0, -1e300])
    make_finite(scores, np.empty(0), np.empty(0, dtype=np.int8), ORACLE_MULTIPLE)
    assert scores.tolist() == [3.0, -1e300]


@pytest.mark.parametrize("seed", [301043, 301589, 302093, 302395, 304525, 304717])
def test_graphs_that_lost_digits_to_forbidden_variables(seed: int) -> None:
    """Found by the stress run at scales from 1e4 to 1e8: 1e-6 to 1e-2 off, some called SOLVED.

    The polish worked with scores of minus a million times the largest.
    """
    assert (draw_graph(seed).eta == -np.inf).any()
    assert checked(seed, extreme=False).wrong == []


@pytest.mark.parametrize(
    ("seed", "statuses"),
    [(400899, ["INFEASIBLE", "INFEASIBLE"]), (504543, ["INFEASIBLE", "SOLVED"])],
)
def test_a_factor_without_allowed_structures_among_others(seed: int, statuses: list[str]) -> None:
    """Its local problem may have no solution to be found, and the copies may agree all the same.

    Both were taken for iteration limits.
    """
    report = checked(seed, extreme=False)
    assert report.wrong == []
    assert report.statuses == statuses


@pytest.mark.parametrize("scale", [1.0, 1e8])
def test_a_forbidden_variable_is_one_that_a_factor_turns_off(scale: float) -> None:
    """In every slot of it, negated ones too, and in factors of closed form and of an oracle."""
    rng = np.random.default_rng(0)
    scores, transitions = scale * rng.normal(size=(4, 3)), scale * rng.normal(size=(3, 3))
    coupling = scale * rng.normal(size=3)
    found = []
    for forbid in (True, False):
        graph = FactorGraph()
        eta = scores.copy()
        eta[1, 2] = -np.inf if forbid else 0.0
        u = graph.variable_from(eta)
        graph.add(Sequence(u, transitions))
        graph.add(Budget(u[:, 2], 1))
        graph.add(Pair(~u[1], u[2], coupling))
        if not forbid:
            graph.add(Xor([~u[1, 2]]))
        solution = graph.solve(tol=1e-12, max_iter=20_000)
        assert solution.ok
        found.append(u.value.copy())
    assert found[0][1, 2] == 0.0
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12 * max(1.0, scale))


def test_a_batch_mate_has_no_part_in_what_a_forbidden_additional_costs() -> None:
    rng = np.random.default_rng(1)
    scores, transitions = rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
    transitions[0, 1] = -np.inf
    found = []
    for scale in (1.0, 1e12):
        graph = FactorGraph()
        u = graph.variable_from(np.stack([scores, scale * scores]))
        graph.add(Sequence(u, transitions))
        graph.add(Budget(u[:, :, 2], 1))
        graph.solve()
        found.append(u.value[0].copy())
    np.testing.assert_array_equal(found[0], found[1])
