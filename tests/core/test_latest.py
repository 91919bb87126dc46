"""Structures that are kept for later graphs: the right ones, unharmed, and few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lpsmap import AtMostOne, Budget, FactorGraph, Sequence, Xor
from lpsmap_core.layout import latest
from lpsmap_core.layout.arrangement import arrange, tabulate
from lpsmap_core.layout.layout import Part, build_layout


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "_latest", [])


def part_of(graph: FactorGraph) -> Part:
    return build_layout(graph.n_variables, graph.factors).part


def rows(n: int, columns: Any = slice(None), negated: bool = False) -> FactorGraph:
    """Return a graph of a choice in every row."""
    graph = FactorGraph()
    u = graph.variable_from(np.linspace(-1.0, 1.0, 4 * n).reshape(n, 4))
    graph.add(Xor((~u if negated else u)[:, columns]))
    return graph


def assert_fresh(known: latest._Known) -> None:
    """Check what is kept of a structure against what a look at it finds."""
    table = tabulate(known.n_variables, known.numbers, known.slots, known.variable)
    np.testing.assert_equal(known.table, table)
    if known.arrangement is not None:
        arrays = table.starts, table.component, table.of_factor, table.additional_offsets
        found = arrange(*arrays, known.variable, known.negated, table.n_components)
        np.testing.assert_equal(known.arrangement[:-1], found[:-1])  # but for what engines keep


def test_graphs_of_one_structure_share_it_and_no_others() -> None:
    first = part_of(rows(3))
    assert part_of(rows(3)).links is first.links
    different = [
        rows(3, negated=True),
        rows(3, columns=[1, 0, 2, 3]),  # the same variables in other slots
        rows(3, columns=[0, 1, 2]),
        rows(4),
    ]
    fewer = FactorGraph()  # the same links in factors of other sizes
    u = fewer.variable_from(np.linspace(-1.0, 1.0, 12))
    fewer.add(Xor(u.reshape(2, 6)))
    for graph in [*different, fewer]:
        assert part_of(graph).links is not first.links
        for known in latest._latest:
            assert_fresh(known)


def coupled(rng: np.random.Generator) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(2, 3, 4)))
    graph.add(Sequence(u, rng.normal(size=(2, 4, 4))))
    graph.add(AtMostOne(u, axis=1))
    return graph


def scattered(rng: np.random.Generator) -> FactorGraph:
    """Return a graph whose components' variables are apart, and one of which is in no factor."""
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 4)))
    graph.add(Budget(~u.T[:3], 2))
    return graph


@pytest.mark.parametrize("make", [coupled, scattered])
def test_solves_leave_a_shared_structure_as_it_is(make: Callable[..., FactorGraph]) -> None:
    def outcome() -> list[list[float]]:
        graph = make(np.random.default_rng(0))
        solution = graph.solve()
        gradient, _ = solution.vjp(np.linspace(-1.0, 1.0, graph.n_variables))
        best = graph.solve_map(exact=True)
        return [x.tolist() for x in (solution.values, gradient, best.values)]

    first = outcome()
    (known,) = latest._latest
    assert outcome() == outcome() == first
    assert latest._latest == [known]
    assert_fresh(known)


def test_few_structures_are_kept_and_no_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(1, 9):
        part_of(rows(n))
    assert [known.n_variables for known in latest._latest] == [32, 28, 24, 20]
    monkeypatch.setattr(latest, "MOST_LINKS", 50)
    part_of(rows(9))  # whose 36 links leave no room for others
    assert [known.n_variables for known in latest._latest] == [36]
    part_of(rows(13))
    assert [known.n_variables for known in latest._latest] == [36]
