"""Heuristics find allowed assignments, and prove only what enumeration confirms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap import Dense, DepTree, FactorGraph, Imply, Knapsack, Matching, Or, Sequence, Xor
from lpsmap_core import Deadline
from lpsmap_decode.exact.component_copies import copies_of
from lpsmap_decode.exact.component_search import FEW_NODES
from lpsmap_decode.heuristics import portfolio
from lpsmap_decode.heuristics.block_search import search_blocks
from lpsmap_decode.heuristics.completion import complete_columns
from lpsmap_decode.heuristics.component import Component
from lpsmap_decode.heuristics.lagrangian import price_rows
from lpsmap_decode.heuristics.neighbourhoods import search_neighbourhoods
from lpsmap_decode.heuristics.portfolio import Portfolio
from lpsmap_decode.heuristics.propagation import OPEN, new_domain, propagate, try_value, undo
from lpsmap_decode.heuristics.rows import restricted
from lpsmap_decode.heuristics.states import search_states
from random_graphs import KINDS, RandomGraph, all_scores, random_graph

LINEAR = [kind for kind in KINDS if kind not in ("Polytope", "DepTree")]


def components_of(graph: FactorGraph) -> Iterator[tuple[Component, npt.NDArray[np.int64]]]:
    """Yield the components of a graph, with their variables' numbers."""
    layout, (scores, additionals) = graph._laid_out(), graph._flat()
    part = layout.part
    eta, eta_v = scores[part.variables], part.by_bucket(additionals, graph.factors)
    for c in range(part.n_components):
        own = slice(*part.first_variable[c : c + 2].tolist())
        of_additionals = eta_v[part.additional_component == c]
        means = np.full(own.stop - own.start, 0.5)
        yield (
            Component(copies_of(part, c, 1), eta[own], of_additionals, means),
            part.variables[own],
        )


def drawn(seed: int, kinds: list[str]) -> RandomGraph:
    rng = np.random.default_rng(seed)
    while True:
        graph = random_graph(
            rng, int(rng.integers(2, 7)), float(rng.choice([1e-3, 1.0, 1e3])), kinds
        )
        if len(graph.eta) <= 14:
            return graph


def judge(seed: int, kinds: list[str]) -> tuple[int, int]:
    """Hold heuristics against enumeration; return how many components they proved, and all."""
    example = drawn(seed, kinds)
    tried, scores = all_scores(example)
    graph, _, _ = example.build()
    n_proved = n = 0
    chosen = np.where(example.eta > 0.0, 1.0, 0.0)  # of variables in no factor
    total = float(np.where(chosen > 0.0, example.eta, 0.0).sum())
    highest = total
    for component, variables in components_of(graph):
        Portfolio(component).run(Deadline(2.0), until_found=True)
        assert component.found, (seed, component.part.buckets)
        heuristics = Portfolio(component)
        for _ in range(40):
            heuristics.run(Deadline(0.0))
            heuristics.run(Deadline(0.002))
        n, n_proved = n + 1, n_proved + component.exhausted
        free = example.eta[variables]
        total += component.score - np.where(chosen[variables] > 0.0, free, 0.0).sum()
        highest += component.highest - np.where(chosen[variables] > 0.0, free, 0.0).sum()
        chosen[variables] = component.chosen
    row = np.flatnonzero((tried == chosen).all(axis=1))
    size = max(1.0, float(np.abs(example.eta).sum()))
    assert scores[row] == pytest.approx(total, abs=1e-9 * size), seed
    assert highest >= scores.max() - 1e-12 * size, seed
    return n_proved, n


@pytest.mark.parametrize("seed", range(30))
def test_all_types_have_an_assignment(seed: int) -> None:
    judge(seed, [*KINDS, "Sequence"])


def test_rows_that_describe_all_factors_are_searched_to_the_end() -> None:
    counts = np.array([judge(1000 + seed, LINEAR) for seed in range(20)])
    assert counts[:, 0].sum() >= 0.9 * counts[:, 1].sum()


@pytest.mark.slow
def test_three_thousand_graphs_have_an_assignment() -> None:
    for seed in range(10_000, 13_000):
        judge(seed, [*KINDS, "Sequence"])


@pytest.mark.parametrize("seed", range(20))
def test_rows_hold_for_all_that_is_allowed(seed: int) -> None:
    example = drawn(2000 + seed, [*KINDS, "Sequence"])
    tried, scores = all_scores(example)
    graph, _, _ = example.build()
    allowed = tried[scores > -np.inf]
    for component, variables in components_of(graph):
        rows = component.rows
        for r, column in itertools.product(range(len(rows.low) - 1), [variables]):
            own = slice(*rows.first[r : r + 2])
            if (rows.column[own] >= len(column)).any():
                continue  # additionals
            sums = allowed[:, column[rows.column[own]]] @ rows.coefficient[own]
            assert (sums >= rows.low[r] - 1e-9).all()
            assert (sums <= rows.high[r] + 1e-9).all()


@pytest.mark.parametrize("seed", range(20))
def test_propagation_fixes_what_is_implied_and_is_undone(seed: int) -> None:
    example = drawn(3000 + seed, LINEAR)
    tried, scores = all_scores(example)
    graph, _, _ = example.build()
    rng = np.random.default_rng(seed)
    for component, variables in components_of(graph):
        rows, n = component.rows, len(variables)
        domain = new_domain(rows)
        assert propagate(rows, domain) < 0
        before = [
            domain.value.copy(),
            domain.least.copy(),
            domain.most.copy(),
            domain.n_open.copy(),
        ]
        length = int(domain.counters[0])
        for column in rng.permutation(n).tolist():
            value = int(rng.integers(2))
            fits = domain.value[column] in (OPEN, value)
            allowed = tried[scores > -np.inf][:, variables]
            known = domain.value[:n] != OPEN
            left = allowed[(allowed[:, known] == domain.value[:n][known]).all(axis=1)]
            fixed = try_value(rows, domain, column, value)
            matching = left[left[:, column] == value]
            if fits and len(matching):
                assert fixed
                known = domain.value[:n] != OPEN
                assert (matching[:, known] == domain.value[:n][known]).all()
        undo(rows, domain, length)
        np.testing.assert_array_equal(domain.value, before[0])
        np.testing.assert_array_equal(domain.n_open, before[3])
        for now, then in zip(domain[1:3], before[1:3], strict=True):
            np.testing.assert_allclose(now, then, atol=1e-12 * (1.0 + np.abs(then).max()))


def test_restricted_rows_allow_what_the_rows_allow() -> None:
    component = next(components_of(knapsacks(6, 1)))[0]
    rows, rng = component.rows, np.random.default_rng(0)
    row = np.repeat(np.arange(len(rows.low)), np.diff(rows.first))
    for _ in range(50):
        values = rng.integers(0, 2, 36).astype(np.float64)
        sums = np.bincount(row, rows.coefficient * values[rows.column], len(rows.low))
        free = np.sort(rng.permutation(36)[:8])
        part = restricted(rows, values, sums, free)
        other = values.copy()
        other[free] = rng.integers(0, 2, 8)
        changed = np.bincount(row, rows.coefficient * other[rows.column], len(rows.low))
        own = np.repeat(np.arange(len(part.low)), np.diff(part.first))
        inside = np.bincount(own, part.coefficient * other[free][part.column], len(part.low))
        touched = np.flatnonzero(np.isin(np.arange(len(rows.low)), row[np.isin(rows.column, free)]))
        np.testing.assert_allclose(part.high - inside, (rows.high - changed)[touched], atol=1e-12)


def knapsacks(n: int, seed: int) -> FactorGraph:
    """Return a knapsack for each row and each column of a square."""
    rng, graph = np.random.default_rng(seed), FactorGraph()
    u = graph.variable_from(rng.random((n, n)))
    costs = rng.random((2, n, n))
    graph.add(Knapsack(u, costs[0], costs[0].sum(1) / 3))
    graph.add(Knapsack(u.T, costs[1], costs[1].sum(1) / 3))
    return graph


def test_neighbourhoods_improve_knapsacks() -> None:
    component = next(components_of(knapsacks(12, 0)))[0]
    next(complete_columns(component))
    first = component.score
    for _ in itertools.islice(search_neighbourhoods(component), 200):
        pass
    assert component.score > first


def test_what_improves_an_assignment_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []

    def finds(component: Component) -> Iterator[None]:
        for step in range(3):
            turns.append("finds")
            if step == 2:
                component.offer(np.zeros(component.part.n_variables, dtype=bool))
            yield

    def improves(component: Component) -> Iterator[None]:
        assert component.found
        turns.append("improves")
        yield

    monkeypatch.setattr(portfolio, "ALL", (finds,))
    monkeypatch.setattr(portfolio, "LINEAR_IMPROVING", (improves,))
    Portfolio(next(components_of(knapsacks(3, 0)))[0]).run(Deadline())
    assert turns == ["finds", "finds", "finds", "improves"]


def test_prices_match_two_sequences() -> None:
    rng, graph = np.random.default_rng(0), FactorGraph()
    u = graph.variable_from(rng.standard_normal((12, 12)))
    graph.add(Sequence(u, rng.standard_normal((12, 12))))
    graph.add(Sequence(u.T, rng.standard_normal((12, 12))))
    component = next(components_of(graph))[0]
    for _ in itertools.islice(price_rows(component), 2000):
        if component.found:
            break
    chosen = component.chosen.reshape(12, 12)
    assert (chosen.sum(axis=0) == 1).all()
    assert (chosen.sum(axis=1) == 1).all()


# -------------------------------------------------------------------- searches that begin with them


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_every_row_and_column_of_a_large_square_has_its_knapsack() -> None:
    found = knapsacks(60, 0).solve_map(exact=True, max_nodes=1, threads=1, max_time=30.0)
    assert found.found.all()


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_a_thousand_implications_have_an_assignment() -> None:
    rng, graph = np.random.default_rng(0), FactorGraph()
    u = graph.variable_from(rng.standard_normal(200))
    graph.add(Imply(u[rng.integers(0, 200, (1000, 2))]))
    assert graph.solve(max_iter=2).decode(max_nodes=1).found.all()


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
def test_a_tree_whose_heads_are_matched_has_an_assignment() -> None:
    rng, graph = np.random.default_rng(0), FactorGraph()
    u = graph.variable_from(rng.standard_normal((30, 30)))
    graph.add(DepTree(u))
    graph.add(Matching(u[:15, 15:]))
    found = graph.solve_map(exact=True, max_nodes=1, threads=1)
    assert found.found.all()


SUDOKUS = (
    "800000000003600000070090200050007000000045700000100030001000068008500010090000400",
    "000000010400000000020000000000050407008000300001090000300400200050100000000806000",
    "100007090030020008009600500005300900010080002600004000300000010040000007007000300",
    "005300000800000020070010500400005300010070006003200080060500009004000030000009700",
)


@pytest.mark.parametrize("clues", SUDOKUS)
def test_hard_sudokus_are_proved_without_branching_on_the_relaxation(clues: str) -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).standard_normal((9, 9, 9)))
    for view in (u, u.transpose(0, 2, 1), u.transpose(1, 2, 0)):
        graph.add(Xor(view))
    boxes = u.reshape(3, 3, 3, 3, 9).transpose(0, 2, 4, 1, 3).reshape(9, 9, 9)
    graph.add(Xor(boxes))
    digits = np.array([int(c) for c in clues]).reshape(9, 9)
    given = digits > 0
    known = graph.condition([(u[given], np.eye(9)[np.maximum(digits - 1, 0)][given])])
    found = known.graph.solve_map(exact=True, max_nodes=64, threads=1, solver="lpsmap")
    assert found.ok
    assert found.n_nodes.sum() <= FEW_NODES


@pytest.mark.parametrize("seed", range(20))
def test_probing_fixes_only_what_all_assignments_have(seed: int) -> None:
    example = drawn(4000 + seed, [*KINDS, "Sequence"])
    tried, scores = all_scores(example)
    graph, _, _ = example.build()
    allowed = tried[scores > -np.inf]
    for component, variables in components_of(graph):
        value = component.implied[: len(variables)]
        known = value != OPEN
        assert (allowed[:, variables][:, known] == value[known]).all()
        assert component.highest > -np.inf


def test_probing_combines_rows() -> None:
    graph = FactorGraph()
    u = graph.variable(3)
    graph.add(Xor(u))
    graph.add(Xor(u[:2]))
    ((component, _),) = components_of(graph)
    assert component.implied.tolist() == [OPEN, OPEN, 0]


def test_probing_proves_that_nothing_is_allowed() -> None:
    graph = FactorGraph()
    u = graph.variable(2)
    for one, other in itertools.product((u[0], ~u[0]), (u[1], ~u[1])):
        graph.add(Or([one, other]))
    ((component, _),) = components_of(graph)
    assert (component.implied == OPEN).sum() < len(component.implied)
    assert component.highest == -np.inf


@pytest.mark.parametrize("search", [search_states, search_blocks])
def test_searches_of_states_reach_the_best_of_a_network_of_many_valleys(search) -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(7, 3)))
    for i, j in itertools.combinations(range(7), 2):
        graph.add(Dense([u[i], u[j]], np.where(rng.random((3, 3)) < 0.3, -10.0, 0.0)))
    ((component, _),) = components_of(graph)
    searches = search(component)
    for _ in range(50):
        next(searches)
    best = max(
        float(graph.flat_scores().reshape(7, 3)[range(7), list(states)].sum())
        + sum(
            float(np.asarray(f.additionals).reshape(3, 3)[states[i], states[j]])
            for f, (i, j) in zip(graph.factors, itertools.combinations(range(7), 2), strict=True)
        )
        for states in itertools.product(range(3), repeat=7)
    )
    assert component.score == pytest.approx(best)
