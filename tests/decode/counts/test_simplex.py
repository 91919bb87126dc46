"""The dual simplex method of count programs, held to HiGHS; and the search that uses it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import optimize

import judges
from lpsmap import AtMostOne, Budget, FactorGraph, Or, Xor
from lpsmap_core import Deadline
from lpsmap_decode.counts.simplex import (
    FOUND,
    GIVEN_UP,
    NOTHING_FITS,
    CountProgram,
    Tableau,
    best_vertex,
    fits,
    new_tableau,
    next_vertex,
    vertex_bound,
)
from lpsmap_decode.exact import component_search, count_search
from lpsmap_decode.exact.count_search import CountSpace
from lpsmap_decode.results.search_limits import SearchLimits
from lpsmap_decode.search import Search

FloatArray = npt.NDArray[np.float64]


def drawn(seed: int) -> tuple[CountProgram, FloatArray]:
    """Draw a program, and its matrix; scores tie often, rows contradict at times."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 12)), int(rng.integers(0, 14))
    eta = rng.normal(size=n) if seed % 2 else rng.integers(-2, 3, size=n).astype(float)
    eta[rng.random(n) < 0.1] = rng.choice([-np.inf, np.inf])
    sizes = rng.integers(1, n + 1, size=k)
    variable = np.concatenate([np.empty(0, np.int64), *(rng.permutation(n)[:m] for m in sizes)])
    negated = rng.random(len(variable)) < 0.3
    ends = np.cumsum(sizes)
    begin = ends - sizes
    matrix = np.zeros((k, n))
    np.add.at(matrix, (np.repeat(np.arange(k), sizes), variable), np.where(negated, -1.0, 1.0))
    n_negated = (matrix < 0.0).sum(axis=1)
    low = rng.choice([-np.inf, 0.0, 1.0, 2.0], size=k, p=[0.4, 0.2, 0.3, 0.1]) - n_negated
    high = np.where(rng.random(k) < 0.4, np.inf, low + rng.integers(0, 3, size=k))
    high = np.where(np.isneginf(low), rng.integers(0, 3, size=k) - n_negated, high)
    program = CountProgram(eta, 7, variable + 7, negated, begin, ends, low, high)
    return program, matrix


def check_vertex(
    program: CountProgram, matrix: FloatArray, outcome: int, x: FloatArray, y: FloatArray
) -> float | None:
    """Hold an outcome, a vertex and multipliers to HiGHS; return the optimum if there is one."""
    finite = np.where(np.isfinite(program.eta), program.eta, 0.0)
    least, most = (program.eta == np.inf).astype(float), (program.eta > -np.inf).astype(float)
    rows, limits = np.vstack([matrix, -matrix]), np.concatenate([program.high, -program.low])
    kept = np.isfinite(limits)
    bounds = np.stack([least, most], axis=1)
    judge = optimize.linprog(-finite, rows[kept], limits[kept], bounds=bounds, method="highs")
    reduced = np.empty(len(finite))
    assert outcome != GIVEN_UP
    if judge.status == 2:  # infeasible
        assert outcome == NOTHING_FITS
        nothing = program._replace(eta=np.where(np.isinf(program.eta), program.eta, 0.0))
        assert vertex_bound(nothing, y, reduced) < -1e-6
        return None
    assert outcome == FOUND
    assert finite @ x == pytest.approx(-judge.fun, abs=1e-9)
    assert vertex_bound(program, y, reduced) == pytest.approx(-judge.fun, abs=1e-9)
    assert (x >= least - 1e-9).all()
    assert (x <= most + 1e-9).all()
    assert (rows[kept] @ x <= limits[kept] + 1e-9).all()
    assert (reduced[x < 0.5 * (least + most) - 1e-9] <= 1e-9).all()
    return -float(judge.fun)


@pytest.mark.parametrize("seed", range(400))
def test_a_vertex_is_the_optimum_or_nothing_fits(seed: int) -> None:
    program, matrix = drawn(seed)
    x, y = np.empty(len(program.eta)), np.empty(len(matrix))
    outcome = best_vertex(program, x, y)
    optimum = check_vertex(program, matrix, outcome, x, y)
    if optimum is not None:  # any multipliers bound the optimum
        other = y + np.random.default_rng(seed).normal(size=len(y))
        assert vertex_bound(program, other, x) >= optimum - 1e-9


@pytest.mark.parametrize("seed", range(100))
def test_other_fixed_variables_continue_from_the_tableau(seed: int) -> None:
    program, matrix = drawn(seed)
    rng, y, tableau = np.random.default_rng(seed), np.empty(len(matrix)), new_tableau(program)
    for _ in range(8):
        fixed = rng.choice([-np.inf, 0.0, np.inf], size=len(program.eta), p=[0.2, 0.6, 0.2])
        eta = np.where(np.isfinite(program.eta) & (fixed != 0.0), fixed, program.eta)
        some = program._replace(eta=eta)
        outcome = next_vertex(some, tableau, y)
        check_vertex(some, matrix, outcome, tableau.x, y)


def test_equal_scores_do_not_let_the_method_cycle() -> None:
    """All scores of a sudoku without clues are zero, so that all ratios are equal."""
    cell = np.arange(729).reshape(9, 9, 9)
    boxes = cell.reshape(3, 3, 3, 3, 9).transpose(0, 2, 4, 1, 3)
    rows = [cell, cell.transpose(0, 2, 1), cell.transpose(1, 2, 0), boxes]
    variable = np.concatenate([view.reshape(-1) for view in rows])
    begin, one = np.arange(0, len(variable), 9), np.ones(len(variable) // 9)
    negated = np.zeros(len(variable), dtype=bool)
    program = CountProgram(np.zeros(729), 0, variable, negated, begin, begin + 9, one, one)
    x, y = np.empty(729), np.empty(len(one))
    assert best_vertex(program, x, y) == FOUND
    np.testing.assert_allclose(x[variable].reshape(-1, 9).sum(axis=1), 1.0, rtol=0, atol=1e-9)
    assert vertex_bound(program, y, np.empty(729)) == 0.0


def test_columns_that_just_suffice_are_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A false contradiction has no proof, and the node is solved again from a new tableau."""
    made = []

    def noted(program: CountProgram) -> Tableau:
        made.append(program)
        return new_tableau(program)

    monkeypatch.setattr(count_search, "new_tableau", noted)
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(1).normal(size=(6, 6, 6)))
    for view in (u, u.transpose(0, 2, 1), u.transpose(1, 2, 0)):
        graph.add(Xor(view))
    part = graph._laid_out().part
    space = CountSpace(part, 0, graph.flat_scores()[part.variables])
    assert Search(space.root(), 1e-8).run(space).finished
    assert len(made) == 1


def of_counts(seed: int) -> FactorGraph:
    """Draw a graph of counts, contradictory at times."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=9)) ^ (rng.random(9) < 0.2)
    graph.add(AtMostOne(u[:4]))
    for kind in rng.choice([Xor, Or, AtMostOne, Budget], size=6):
        some = u[rng.permutation(9)[: rng.integers(2, 5)]]
        graph.add(kind(some, 2) if kind is Budget else kind(some))
    return graph


@pytest.mark.parametrize("seed", range(40))
def test_the_search_finds_the_best_or_proves_that_there_is_none(seed: int) -> None:
    graph = of_counts(seed)
    part, scores = graph._laid_out().part, graph.flat_scores()
    everything = judges.binary_vectors(part.n_variables)
    eta = scores[part.variables]
    for c in range(part.n_components):
        if not CountSpace.serves(part, c):
            continue
        variables = slice(*part.first_variable[c : c + 2].tolist())
        space = CountSpace(part, c, eta[variables])
        n = variables.stop - variables.start
        tried = everything[:, :n] if n < part.n_variables else everything
        allowed = [x for x in np.unique(tried, axis=0) if fits(space._program, x.astype(float))]
        best = max((float(eta[variables] @ x) for x in allowed), default=-np.inf)
        found = Search(space.root(), 1e-8).run(space)
        assert found.finished
        assert found.score == pytest.approx(best)
        assert found.bound >= best - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_probing_leaves_out_no_variable_that_an_assignment_has_on(seed: int) -> None:
    graph = of_counts(seed)
    part = graph._laid_out().part
    eta = graph.flat_scores()[part.variables]
    for c in range(part.n_components):
        if not CountSpace.serves(part, c):
            continue
        variables = slice(*part.first_variable[c : c + 2].tolist())
        whole = CountSpace(part, c, eta[variables])
        probed = CountSpace.probed(part, c, eta[variables])
        for x in judges.binary_vectors(variables.stop - variables.start):
            if fits(whole._program, x.astype(float)):
                assert not (x.astype(bool) & ~probed._open).any()
        best, found = (Search(s.root(), 1e-8).run(s) for s in (whole, probed))
        assert found.finished
        assert found.score == pytest.approx(best.score)


def test_probing_leaves_out_variables_that_rows_switch_off() -> None:
    """Two rows that share two variables: one of these is on, so the third one is off."""
    graph = FactorGraph()
    u = graph.variable_from(np.array([1.0, 2.0, 9.0]))
    graph.add(Xor(u))
    graph.add(Xor(u[:2]))
    space = CountSpace.probed(graph._laid_out().part, 0, np.array([1.0, 2.0, 9.0]))
    assert space._open.tolist() == [True, True, False]
    assert Search(space.root(), 1e-8).run(space).score == 2.0


def test_a_few_nodes_come_before_the_heuristics_of_a_large_component(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first vertex of an assignment problem is its solution."""

    def no_heuristics(*_: Any, **__: Any) -> None:
        raise AssertionError("a node suffices")

    monkeypatch.setattr(component_search, "LARGE", 0)
    monkeypatch.setattr(component_search, "SECONDS_OF_FEW", 60.0)
    monkeypatch.setattr(component_search.Portfolio, "run", no_heuristics)
    scores = np.random.default_rng(0).normal(size=(4, 4))
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(Xor(u.T))
    part, unknown = graph._laid_out().part, np.full(1, np.inf)
    limits = SearchLimits(1e-8, None, Deadline(), 1)
    of_variables = scores.reshape(-1), np.empty(0), np.zeros(16), np.zeros(16, dtype=bool)
    found = component_search.decode_part(part, *of_variables, -unknown, unknown, limits)
    row, column = optimize.linear_sum_assignment(scores, maximize=True)
    assert found.score[0] == pytest.approx(scores[row, column].sum())
    assert found.bound[0] == pytest.approx(found.score[0])


def test_limits_leave_a_bound() -> None:
    """Twelve that repel each other: the first node bounds what the others have to prove."""
    graph = FactorGraph()
    u = graph.variable_from(np.ones(6))
    first, second = np.array(list(itertools.combinations(range(6), 2))).T
    graph.add(AtMostOne(u[np.stack([first, second], axis=1)]))
    found = graph.solve_map(exact=True)
    assert found.ok
    assert found.total == pytest.approx(1.0)
    assert graph.solve_map().objective.sum() == pytest.approx(3.0)
