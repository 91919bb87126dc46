"""The k best assignments of a graph against all of them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence as Several
from typing import Any

import numpy as np
import pytest

import judges
from lpsmap import (
    AtMostOne,
    Bits,
    Budget,
    Dense,
    DepTree,
    FactorGraph,
    Or,
    Pair,
    Sequence,
    TopK,
    Xor,
)
from lpsmap_core import ConvergenceWarning, Deadline, Variables
from lpsmap_decode.exact import k_best, single_factors
from lpsmap_decode.exact.count_search import CountSpace
from lpsmap_decode.exact.single_factors import two_best
from lpsmap_decode.results import assignment
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.solvers.external_solver import MIN_GAP
from random_graphs import KINDS, all_scores, random_graph


def check(graph: FactorGraph, tried: np.ndarray, scores: np.ndarray, k: int) -> None:
    """Compare the k best assignments of a graph with all assignments and their scores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of graphs without an assignment
        ranked = graph.k_best(k)
    allowed = np.sort(scores[scores > -np.inf])[::-1]
    if not allowed.size:
        assert len(ranked) == 1
        assert not ranked[0].found.all()
        assert ranked[0].proved.all()
        return
    assert len(ranked) == min(k, len(allowed))
    np.testing.assert_allclose([found.total for found in ranked], allowed[:k], atol=1e-8)
    met = set()
    for found in ranked:
        assert found.ok
        (row,) = np.flatnonzero((tried == found.values).all(axis=1))
        assert scores[row] == pytest.approx(found.total, abs=1e-8)
        met.add(row)
    assert len(met) == len(ranked)


@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_are_found_in_their_order(seed: int) -> None:
    """In random graphs of several components, with variables in no factor."""
    rng = np.random.default_rng(seed)
    most = 9 if seed % 3 else 12
    drawn = random_graph(rng, int(rng.integers(1, 5)), 1.0, [*KINDS, "Sequence"])
    while len(drawn.eta) > most:
        drawn = random_graph(rng, int(rng.integers(1, 5)), 1.0, [*KINDS, "Sequence"])
    if seed % 4 == 0:
        drawn.eta[:] = np.round(drawn.eta)  # ties
    if seed % 5 == 0:
        drawn.eta[rng.integers(len(drawn.eta))] = -np.inf
    tried, scores = all_scores(drawn)
    graph, _, _ = drawn.build()
    check(graph, tried, scores, int(rng.choice([1, 2, 6, 40, 5000])))


def test_components_are_merged_in_order() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[1.0, 0.9, 0.0], [1.0, 0.5, 0.2]])
    graph.add(Xor(u))
    ranked = graph.k_best(4)
    assert [found.total for found in ranked] == pytest.approx([2.0, 1.9, 1.5, 1.4])
    chosen = [found.value_of(u).argmax(axis=1).tolist() for found in ranked]
    assert chosen == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert all(found.ok for found in ranked)
    totals = [found.total for found in graph.k_best(100)]
    every = np.sort(np.add.outer([1.0, 0.9, 0.0], [1.0, 0.5, 0.2]).ravel())[::-1]
    np.testing.assert_allclose(totals, every)


def test_variables_in_no_factor_have_both_values() -> None:
    graph = FactorGraph()
    u = graph.variable_from([1.0, 0.25])
    graph.add(Xor(u))
    v = graph.variable_from([0.5, -0.125, -np.inf, 0.0])
    ranked = graph.k_best(1000)
    assert len(ranked) == 2 * 8
    totals = [found.total for found in ranked]
    assert totals[:4] == [1.5, 1.5, 1.375, 1.375]
    assert totals == sorted(totals, reverse=True)
    assert len({tuple(found.values) for found in ranked}) == 16
    assert all(found.value_of(v)[2] == 0.0 for found in ranked)
    alone = FactorGraph()
    alone.variable_from([1.0, 2.0])
    assert [found.total for found in alone.k_best(9)] == [3.0, 2.0, 1.0, 0.0]


def test_few_of_many_components_are_searched_past_their_second() -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(30, 4)))
    graph.add(Xor(u))
    ranked = graph.k_best(20)
    scores = np.sort(graph.flat_scores()[u.index], axis=1)[:, ::-1]
    totals = np.array([scores[:, 0].sum()])
    losses = np.zeros(1)
    for row in scores:  # all sums of losses that are among the smallest
        losses = np.sort(np.add.outer(losses, row[0] - row).ravel())[:20]
    np.testing.assert_allclose([one.total for one in ranked], totals - losses, atol=1e-9)
    assert all(one.ok for one in ranked)


def test_a_graph_without_an_assignment_has_one_entry() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[1.0, 2.0], [-np.inf, -np.inf]])
    graph.add(Xor(u))
    with pytest.warns(ConvergenceWarning, match="that no zeros and ones satisfy"):
        (found,) = graph.k_best(5)
    assert found.found.tolist() == [True, False]
    np.testing.assert_array_equal(found.value_of(u), [[0.0, 1.0], [np.nan, np.nan]])


def test_what_is_all_forbidden_has_one_assignment() -> None:
    """As components of known variables are; there is no mean of no scores."""
    graph = FactorGraph()
    u = graph.variable_from([-np.inf, -np.inf])
    graph.add(AtMostOne(u))
    (found,) = graph.k_best(5)
    assert found.ok
    assert found.values.tolist() == [0.0, 0.0]


def test_a_sudoku_with_one_solution_has_one() -> None:
    rows = ["1234", "3412", "2143", "4321"]
    graph = FactorGraph()
    cells = graph.variable((4, 4, 4))
    boxes = cells.reshape(2, 2, 2, 2, 4).transpose(0, 2, 1, 3, 4).reshape(4, 4, 4)
    for rule, axis in ((cells, -1), (cells, 0), (cells, 1), (boxes, 1)):
        graph.add(Xor(rule, axis=axis))
    known = np.full((4, 4, 4), np.nan)
    for i, j in [(0, 0), (0, 1), (1, 0), (1, 2), (2, 3), (3, 1), (3, 2), (2, 0)]:
        known[i, j] = np.arange(4) == int(rows[i][j]) - 1
    given = graph.condition([(cells, known)])
    ranked = given.graph.k_best(3)
    digits = given.of(cells).value.argmax(axis=2) + 1
    assert ["".join(map(str, row)) for row in digits.tolist()] == rows
    assert len(ranked) == 1


def test_every_component_is_ranked_by_itself() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    xor = graph.add(Xor(u))
    single = graph.variable_from([1.0, 2.0])
    graph.add(Xor(single))
    free = graph.variable_from([1.0, -1.0])
    first, second, third = graph.k_best(9, by_component=True)
    np.testing.assert_array_equal(u.value, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(second.value_of(u), [[0, 0, 1], [0, 0, 1]])
    np.testing.assert_array_equal(third.value_of(~u), [[1, 0, 1], [0, 1, 1]])
    assert third.score.tolist() == [1.0, 0.0, -np.inf]
    assert third.found.tolist() == [True, True, False]
    assert third.proved.all()
    assert np.isnan(third.value_of(single)).all()
    assert third.value_of(free).tolist() == [1.0, 0.0]
    assert [d[0].decoded for d in second.structures(xor)] == [{"on": [2]}, {"on": [2]}]
    assert first.ok
    with pytest.raises(TypeError, match="k_best: by_component"):
        graph.k_best(2, by_component=3)  # type: ignore[arg-type]


def test_tables_and_trees_are_ranked_together() -> None:
    rng = np.random.default_rng(3)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=(3, 3)))
    trees = graph.add(DepTree(u))
    graph.add(Pair(u[0, 1], u[2, 1], 2.0))
    x = graph.variable_from(rng.normal(size=(2, 2)))
    dense = graph.add(Dense([x[0], x[1]], rng.normal(size=(2, 2))))
    ranked = graph.k_best(4, by_component=True)
    assert all(found.ok for found in ranked)
    heads = {tuple(found.structures(trees)[()][0].decoded["heads"]) for found in ranked}
    states = [tuple(found.structures(dense)[()][0].decoded["states"]) for found in ranked]
    assert len(heads) == 4
    table = graph.additional_scores(dense).reshape(2, 2)
    scores = graph.flat_scores()[x.index]
    total = scores[0][:, None] + scores[1] + table
    assert states == [np.unravel_index(i, (2, 2)) for i in np.argsort(-total.ravel())]


@pytest.mark.compiled
def test_limits_leave_an_honest_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=14))
    i, j = np.triu_indices(14, 1)
    graph.add(Pair(u[i], u[j], rng.normal(size=len(i))))
    proved = graph.k_best(3)
    with pytest.warns(ConvergenceWarning, match="raise max_time or max_nodes"):
        limited = graph.k_best(3, max_nodes=1)
    assert not limited[0].ok
    assert limited[0].bound[0] >= proved[0].score[0] - 1e-9
    monkeypatch.setattr(assignment, "find_spec", lambda name: None)
    with pytest.warns(
        ConvergenceWarning, match="install highspy, another solver, or raise max_time"
    ):
        graph.k_best(3, max_nodes=1)
    two = FactorGraph()  # the second best of two components may be in either
    u = two.variable_from(np.concatenate([graph.flat_scores(), [3.0, 0.0]]))
    two.add(Pair(u[i], u[j], graph.additional_scores(graph.factors[0]).ravel()))
    two.add(Xor(u[14:]))
    with pytest.warns(ConvergenceWarning):
        ranked = two.k_best(3, max_nodes=1)
    assert all(one.bound[0] >= proved[0].score[0] - 1e-9 for one in ranked)
    assert not any(one.ok for one in ranked)
    with pytest.raises(ValueError, match="k_best: k"):
        graph.k_best(0)


def test_bounds_of_rescaled_scores_include_the_gap() -> None:
    """The first is the best only up to the gap; its bound was its own score."""
    inexact = 0
    i, j = np.triu_indices(14, 1)
    for seed in range(10):
        scores = 1e200 * np.random.default_rng(seed).normal(size=14 + len(i))
        graph = FactorGraph()
        u = graph.variable_from(scores[:14])
        graph.add(Pair(u[i], u[j], scores[14:]))
        best = graph.solve_map(exact=True).score[0]
        for by_component in (False, True):
            first = graph.k_best(3, gap=0.5, by_component=by_component)[0]
            assert first.proved[0]
            assert first.bound[0] >= best * (1.0 - 1e-9)
            inexact += first.score[0] < best * (1.0 - 1e-6)
    assert inexact


def test_bad_scores_stay_with_their_component() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[1.0, 0.0], [np.nan, 0.0]])
    graph.add(Xor(u))
    with pytest.warns(ConvergenceWarning):
        first, second = graph.k_best(2)
    assert first.found.tolist() == second.found.tolist() == [True, False]
    assert np.isnan(first.bound[1])


def test_no_contradiction_is_proven_by_rounding() -> None:
    """A sequence over variables twice, whose masks are needed: two assignments more are allowed."""
    mask, places = -3.4e38, [4, 3, 0, 5, 3, 0, 1, 4]
    scores = np.array([1e8, -5e7, -5e7, mask, mask, mask])
    initial, final = [2e8, 5e7], [-1e8, -5e7]
    steps = [mask, 0.0, 1.5e8, 5e7, mask, -1e8, 0.0, 1e8, 1.5e8, 0.0, 1e8, 0.0]
    graph = FactorGraph()
    u = graph.variable_from(scores)
    states = (~u[places]).reshape(4, 2)
    graph.add(Sequence(states, additionals=np.array([*initial, *steps, *final])))
    graph.add(Bits(~u[[2, 1]]))
    tried = judges.binary_vectors(6)
    on = 1.0 - tried[:, places].reshape(-1, 4, 2)
    allowed = tried[(on.sum(axis=2) == 1.0).all(axis=1)]
    ranked = graph.k_best(len(allowed) + 1)
    found = [one.values.tolist() for one in ranked]
    assert sorted(found) == sorted(allowed.tolist())


@pytest.mark.parametrize("seed", range(6))
def test_the_two_best_of_one_factor_are_those_of_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph, scores = FactorGraph(), np.round(rng.normal(size=(5, 4)), 1)
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    u = graph.variable_from(scores)
    flips = rng.random(scores.shape) < 0.3
    graph.add(AtMostOne(Variables(u.graph, u.index, flips)))
    part = graph._laid_out().part
    found = two_best(part, scores.reshape(-1)[part.variables], np.empty(0), Deadline())
    tried = np.array(list(itertools.product((False, True), repeat=4)))
    for c in range(5):
        variables = part.variables[slice(*part.first_variable[c : c + 2])]
        row, own = int(variables[0]) // 4, scores.reshape(-1)[variables]
        allowed = (tried != flips[row][variables % 4]).sum(axis=1) <= 1
        totals = np.where(tried, own, 0.0).sum(axis=1)
        best = np.sort(totals[allowed & (totals > -np.inf)])[::-1][:2]
        assert [total for total, _ in found[c]] == pytest.approx(best.tolist())
        for total, flags in found[c]:
            assert np.where(flags, own, 0.0).sum() == pytest.approx(total)
            assert allowed[(tried == flags).all(axis=1)].all()


@pytest.mark.parametrize("seed", range(6))
def test_the_two_best_counts_are_those_of_enumeration(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts of any width need two calls of the oracle."""
    monkeypatch.setattr(single_factors, "MAX_SLOTS", 0)
    rng = np.random.default_rng(seed)
    graph, scores = FactorGraph(), np.round(rng.normal(size=(20, 5)), 1)
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    flips = rng.random(scores.shape) < 0.3
    u = graph.variable_from(scores)
    kinds = {Or: (1, 5), Budget: (0, 2), TopK: (2, 2), Xor: (1, 1), AtMostOne: (0, 1)}
    for i, kind in enumerate(kinds):
        slots = Variables(u.graph, u.index[4 * i : 4 * i + 4], flips[4 * i : 4 * i + 4])
        graph.add(kind(slots, 2) if kind in (Budget, TopK) else kind(slots))
    part = graph._laid_out().part
    found = two_best(part, scores.reshape(-1)[part.variables], np.empty(0), Deadline())
    tried = np.array(list(itertools.product((False, True), repeat=5)))
    assert len(found) == 20
    for c in range(20):
        variables = part.variables[slice(*part.first_variable[c : c + 2])]
        row = int(variables[0]) // 5
        least, most = list(kinds.values())[row // 4]
        count = (tried != flips[row]).sum(axis=1)
        allowed = tried[(count >= least) & (count <= most)]
        totals = np.where(allowed, scores[row], 0.0).sum(axis=1)
        best = np.sort(totals[totals > -np.inf])[::-1][:2]
        assert [total for total, _ in found[c]] == pytest.approx(best.tolist())
        assert len({flags.tobytes() for _, flags in found[c]}) == len(best)
        for total, flags in found[c]:
            chosen = (allowed[:, variables % 5] == flags).all(axis=1)
            assert totals[chosen].tolist() == [pytest.approx(total)]


def test_a_solver_starts_from_the_best_that_is_not_ranked() -> None:
    """3 is ranked; the search has met 1 and 2."""
    flags = [np.arange(3) == i for i in range(3)]
    asked = []

    def next_best(
        known: Several[np.ndarray], start: np.ndarray | None
    ) -> tuple[np.ndarray | None, float, float]:
        asked.append((len(known), None if start is None else int(start.argmax())))
        return None, -np.inf, -np.inf

    def no_space() -> Any:
        raise AssertionError("the solver is asked at once")

    limits = SearchLimits(1e-8, None, Deadline(), 1)
    ranking = k_best.Ranking(no_space, lambda: None, limits, [(3.0, flags[0])], next_best)
    ranking._final, ranking._patience = None, Deadline(0.0)
    ranking._meet(flags[2], 1.0)
    ranking._meet(flags[1], 2.0)
    assert ranking.has(1)
    assert asked == [(1, 1)]
    assert ranking.scores == [3.0, 2.0]


@pytest.mark.parametrize("seed", range(4))
def test_a_solver_ranks_what_the_search_does_not(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("highspy")
    monkeypatch.setattr(CountSpace, "patience", 0.0)
    scores = np.random.default_rng(seed).normal(size=(3, 3))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(Xor(u.T))
    totals = [scores[range(3), list(p)].sum() for p in itertools.permutations(range(3))]
    ranked = graph.k_best(9)
    assert [found.total for found in ranked] == pytest.approx(sorted(totals, reverse=True))
    assert len({found.values.tobytes() for found in ranked}) == len(totals)
    assert all(found.ok for found in ranked)
    assert ranked[0].gap >= MIN_GAP
