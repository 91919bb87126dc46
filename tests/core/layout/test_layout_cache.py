"""The cache of layouts: what it returns is what a new layout would be, and it stays small."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lpsmap import (
    AtMostOne,
    Budget,
    Dense,
    Factor,
    FactorGraph,
    Matching,
    Or,
    Sequence,
    Variables,
    Xor,
)
from lpsmap_core.layout import arrangement
from lpsmap_core.layout.arrangement import arrange, tabulate
from lpsmap_core.layout.layout import Part, build_layout

Factors = Callable[[Variables], list[Factor]]


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangement, "_entries", [])


def part_of(graph: FactorGraph) -> Part:
    return build_layout(graph.n_variables, graph.factors).part


def rows(n: int, columns: Any = slice(None), negated: bool = False) -> FactorGraph:
    """Return a graph of a choice in every row."""
    graph = FactorGraph()
    u = graph.variable_from(np.linspace(-1.0, 1.0, 4 * n).reshape(n, 4))
    graph.add(Xor((~u if negated else u)[:, columns]))
    return graph


def assert_fresh(entry: arrangement._Entry) -> None:
    """Check an entry against what is found anew."""
    table = tabulate(entry.n_variables, entry.numbers, entry.slots, entry.variable)
    np.testing.assert_equal(entry.table, table)
    if entry.arrangement is not None:
        found = arrange(table, entry.variable, entry.negated)
        np.testing.assert_equal(entry.arrangement[:-1], found[:-1])
        np.testing.assert_equal(entry.arrangement.loop.links, found.loop.links)
        records = [memory.record for memory in entry.arrangement.loop.records]
        np.testing.assert_equal(records, [found.loop.links, found.spans])


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
        for entry in arrangement._entries:
            assert_fresh(entry)


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
    (entry,) = arrangement._entries
    assert outcome() == outcome() == first
    assert arrangement._entries == [entry]
    assert_fresh(entry)


def entries(rng: np.random.Generator, states: tuple[int, ...]) -> Factors:
    """Two tables over nodes of these states."""
    tables = rng.normal(size=(2, *states))
    ends = np.cumsum([0, *states])

    def declare(u: Variables) -> list[Factor]:
        nodes = [u[a:b] for a, b in itertools.pairwise(ends)]
        return [Dense(nodes, table) for table in tables]

    return declare


FAMILIES: dict[str, list[Callable[[np.random.Generator], Factors]]] = {
    "tables": [functools.partial(entries, states=s) for s in [(2, 4), (2, 2, 2), (4, 2)]],
    "counts": [
        lambda _: lambda u: [Xor(u), Xor(u[::-1])],
        lambda _: lambda u: [Or(u), Or(u[::-1])],
        lambda _: lambda u: [AtMostOne(u), AtMostOne(u[::-1])],
        lambda _: lambda u: [Budget(u, 2), Budget(u[::-1], 4)],
        lambda _: lambda u: [Matching(u.reshape(2, 3)), Matching(u[::-1].reshape(2, 3))],
    ],
}
"""Factors over the same links: of other types, or with other parameters."""


@pytest.mark.parametrize("family", FAMILIES)
def test_other_factors_over_the_same_links_change_nothing(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of (2, 4) states left tables of (2, 2, 2) an order of two nodes: wrong, and proved."""

    def outcome(make: Callable[[np.random.Generator], Factors], seed: int) -> list[list[float]]:
        rng = np.random.default_rng(seed)
        graph = FactorGraph()
        for factor in make(rng)(graph.variable_from(rng.normal(size=6))):
            graph.add(factor)
        solution = graph.solve()
        gradient, _ = solution.vjp(np.linspace(-1.0, 1.0, 6))
        best = graph.solve_map(exact=True)
        assert best.proved.all()
        return [x.tolist() for x in (solution.values, gradient, best.values, best.bound)]

    for before, after in itertools.permutations(FAMILIES[family], 2):
        for seed in range(4):
            monkeypatch.setattr(arrangement, "_entries", [])
            alone = outcome(after, seed)
            monkeypatch.setattr(arrangement, "_entries", [])
            outcome(before, seed)
            (entry,) = arrangement._entries
            assert outcome(after, seed) == alone
            assert arrangement._entries == [entry]


def test_the_cache_holds_few_structures_and_no_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(1, 9):
        part_of(rows(n))
    assert [entry.n_variables for entry in arrangement._entries] == [32, 28, 24, 20]
    monkeypatch.setattr(arrangement, "MAX_CACHED_LINKS", 50)
    part_of(rows(9))  # whose 36 links leave no room for others
    assert [entry.n_variables for entry in arrangement._entries] == [36]
    part_of(rows(13))
    assert [entry.n_variables for entry in arrangement._entries] == [36]
