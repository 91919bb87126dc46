"""Irreducible sets of contradicting factors, after relaxations, exact searches and evidence."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from lpsmap import AtMostOne, Budget, DepTree, FactorGraph, Or, Solution, Xor
from lpsmap_core import Factor
from lpsmap_core.api import FloatArray
from lpsmap_decode import Assignment

PUZZLE = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"


@pytest.fixture(autouse=True)
def _enough_time_without_warnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("lpsmap_core.solution.contradictions.MAX_TIME", 100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def exactly(graph: FactorGraph) -> Assignment:
    """Return the result of the exact search."""
    found = graph.solve_map(exact=True)
    assert isinstance(found, Assignment)
    return found


def sudoku(position: int, digit: int) -> FactorGraph:
    """Return a sudoku with a wrong entry."""
    scores = np.zeros((9, 9, 9))
    given = {i: int(c) for i, c in enumerate(PUZZLE) if c != "0"} | {position: digit}
    for i, d in given.items():
        scores[i // 9, i % 9, np.arange(9) != d - 1] = -np.inf
    graph = FactorGraph()
    u = graph.variable_from(scores)
    boxes = u.reshape(3, 3, 3, 3, 9).transpose(0, 2, 4, 1, 3).reshape(9, 9, 9)
    graph.add(Xor(u), name="entry of row {}, column {}")
    graph.add(Xor(u, axis=0), name="column {}, digit index {}")
    graph.add(Xor(u, axis=1), name="row {}, digit index {}")
    graph.add(Xor(boxes), name="box {}, digit index {}")
    return graph


def test_four_talks_in_three_slots_need_seven_factors() -> None:
    graph = FactorGraph()
    slot, room = graph.variable((4, 3)), graph.variable((4, 5))
    one, two = graph.add(Xor(slot), name="talk"), graph.add(AtMostOne(slot, axis=0), name="slot")
    graph.add(Xor(room))
    graph.add(AtMostOne([slot[:, 0], room[:, 0]]))  # the first room is closed in the first slot
    expected = [(one, i) for i in range(4)] + [(two, i) for i in range(3)]
    for found in (graph.solve(), exactly(graph)):
        assert found.contradictions == {0: expected}
        assert found.explanation == (
            "Component 0 has no solution because of talk 0; talk 1; talk 2; talk 3; slot 0; "
            "slot 1; slot 2."
        )


@pytest.mark.parametrize("n", [3, 9])
def test_an_odd_cycle_contradicts_itself_in_whole_numbers(n: int) -> None:
    graph = FactorGraph()
    x, other = graph.variable(n), graph.variable(2)
    cycle = graph.add(Xor([x, x[np.append(np.arange(1, n), 0)]]))
    graph.add(Or([x[0], other[0], other[1]]))
    assert graph.solve().contradictions == {}
    assert exactly(graph).contradictions == {0: [(cycle, i) for i in range(n)]}


def test_a_wrong_entry_of_a_sudoku_has_a_short_explanation() -> None:
    graph = sudoku(2, 3)  # row 0 begins with 5, 3 and 3
    for found in (graph.solve(), exactly(graph)):
        assert found.explanation == (
            "Component 0 has no solution because of entry of row 0, column 1; entry of row 0, "
            "column 2; row 0, digit index 2."
        )


def test_a_wrong_entry_that_only_others_reveal_has_a_longer_one() -> None:
    (named,) = exactly(sudoku(8, 8)).contradictions.values()
    assert 3 < len(named) < 20


def test_evidence_that_contradicts_is_explained_by_the_names_of_the_graph() -> None:
    graph = FactorGraph()
    u = graph.variable((3, 3))
    graph.add(Xor(u), name="row")
    graph.add(Xor(u, axis=0), name="column")
    given = graph.condition([(u[0, 0], 1), (u[1, 0], 1)])
    assert "because of column 0." in given.graph.solve().explanation


def test_trees_and_budgets_contradict_each_other() -> None:
    graph = FactorGraph()
    u = graph.variable((6, 6))
    tree, none = graph.add(DepTree(u)), graph.add(Budget(u[0], 0))
    graph.add(Budget(u[1:4], 5))
    assert graph.solve().contradictions == {0: [(tree, 0), (none, 0)]}


def test_two_declarations_of_a_type_have_different_names() -> None:
    graph = FactorGraph()
    x = graph.variable(2)
    graph.add(Or(x[:1]))
    graph.add(Or(~x[:1]))
    graph.add(Or(x))
    assert graph.solve().explanation == (
        "Component 0 has no solution because of Or of factors[0]; Or of factors[1]."
    )


ALLOWED = {
    Xor: lambda n, arity: n == 1,
    AtMostOne: lambda n, arity: n <= 1,
    Or: lambda n, arity: n >= 1,
}


def feasible(factors: list[Factor], n: int) -> bool:
    """Return whether zeros and ones satisfy some factors, by enumeration."""
    for bits in itertools.product([False, True], repeat=n):
        x = np.array(bits)
        if all(
            ALLOWED[type(f)](int((x[f.variables.index] ^ f.variables.negated).sum()), 0)
            for f in factors
        ):
            return True
    return False


@pytest.mark.parametrize("seed", range(4))
def test_random_contradictions_are_irreducible_by_enumeration(seed: int) -> None:
    rng, n_checked = np.random.default_rng(seed), 0
    for _ in range(6):
        graph, n = FactorGraph(), int(rng.integers(3, 8))
        x = graph.variable_from(rng.normal(size=n))
        for _ in range(int(rng.integers(4, 12))):
            kind = list(ALLOWED)[int(rng.integers(3))]
            some = rng.choice(n, size=int(rng.integers(2, min(n, 4) + 1)), replace=False)
            graph.add(kind(x[some] ^ (rng.random(len(some)) < 0.4)))
        everything = list(graph.factors)
        found: list[Solution | Assignment] = [graph.solve(), exactly(graph)]
        assert bool(found[1].contradictions) == (not feasible(everything, n))
        for result in found:
            for named in result.contradictions.values():
                factors = [factor for factor, _ in named]
                assert not feasible(factors, n)
                for i in range(len(factors)):
                    assert feasible(factors[:i] + factors[i + 1 :], n)
                n_checked += 1
    assert n_checked


def timetable(scores: FloatArray, exclusions: Iterable[tuple[int, int]]) -> FactorGraph:
    """Return a graph of (talk, slot, room), with a factor for each exclusion and slot."""
    n_talks, n_slots, n_rooms = scores.shape
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Xor(u.reshape(n_talks, n_slots * n_rooms)), name="talk {}")
    graph.add(AtMostOne(u.transpose(1, 2, 0)), name="slot {}, room {}")
    for a, b in exclusions:
        both = u[[a, b]].transpose(1, 0, 2).reshape(n_slots, 2 * n_rooms)
        graph.add(AtMostOne(both), name=f"talks {a} and {b} in slot {{}}")
    return graph


def allows_a_timetable(scores: FloatArray, named: Sequence[tuple[Factor, int]]) -> bool:
    """Return whether zeros and ones satisfy rows of Xor and AtMostOne, by scipy."""
    rows = np.zeros((len(named), scores.size))
    for row, (factor, i) in zip(rows, named, strict=True):
        row[factor.variables.index.reshape(factor.n_factors, -1)[i]] = 1.0
    least = [float(isinstance(factor, Xor)) for factor, _ in named]
    solved = milp(
        np.zeros(scores.size),
        constraints=LinearConstraint(rows, least, 1.0) if named else (),
        integrality=np.ones(scores.size),
        bounds=Bounds(0.0, np.isfinite(scores).reshape(-1).astype(float)),
    )
    assert solved.status in {0, 2}
    return bool(solved.status == 0)


def require_irreducible(found: Assignment, scores: FloatArray) -> int:
    """Judge named factors by scipy, and return their number."""
    ((_, named),) = found.contradictions.items()
    assert "time limit" not in found.explanation
    assert not allows_a_timetable(scores, named)
    for i in range(len(named)):
        assert allows_a_timetable(scores, named[:i] + named[i + 1 :])
    return len(named)


def test_pairs_that_exclude_each_other_beside_talks_and_rooms_that_do_not_matter() -> None:
    for n_talks in (5, 6):
        scores = np.random.default_rng(0).normal(size=(n_talks, 3, 2))
        found = exactly(timetable(scores, itertools.combinations(range(4), 2)))
        assert require_irreducible(found, scores) == 4 + 3 * 6


def test_an_odd_cycle_of_exclusions_beside_others() -> None:
    scores = np.random.default_rng(0).normal(size=(6, 3, 2))
    scores[:3, 2] = -np.inf
    found = exactly(timetable(scores, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5)]))
    assert require_irreducible(found, scores) == 3 + 2 * 3


@pytest.mark.parametrize("seed", range(3))
def test_random_timetables_have_irreducible_contradictions(seed: int) -> None:
    rng, n_checked = np.random.default_rng(seed), 0
    while n_checked < 3:
        n_talks, n_slots = int(rng.integers(4, 9)), int(rng.integers(2, 4))
        scores = rng.normal(size=(n_talks, n_slots, 2))
        scores[rng.random(scores.shape[:2]) < 0.15] = -np.inf
        pairs = itertools.combinations(range(n_talks), 2)
        graph = timetable(scores, [pair for pair in pairs if rng.random() < 0.3])
        found = exactly(graph)
        everything = [(factor, i) for factor in graph.factors for i in range(factor.n_factors)]
        assert found.proved.all()
        assert found.found.all() == allows_a_timetable(scores, everything)
        for component, named in found.contradictions.items():
            n_checked += 1
            assert not allows_a_timetable(scores, named), component
            for i in range(len(named)):
                assert allows_a_timetable(scores, named[:i] + named[i + 1 :])


def test_an_explanation_tells_that_time_ended_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = FactorGraph()
    x = graph.variable(3)
    graph.add(Xor([x, x[[1, 2, 0]]]))
    assert exactly(graph).explanation.endswith("Xor 2 of factors[0].")
    monkeypatch.setattr("lpsmap_core.solution.contradictions.MAX_TIME", 0.0)
    assert exactly(graph).explanation.endswith(
        "; more than necessary may be named: the time limit of 0 s ended the search."
    )


def test_the_printed_result_begins_with_infeasible_components() -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0]]))
    graph.add(Xor(u))
    assert repr(exactly(graph)).startswith("Assignment(score 5; of 2 components 2 with")
    graph.add(Xor(u[0, :2]))
    graph.add(Xor(u[0, 2:]))
    found = exactly(graph)
    assert not found.ok and found.proved.all()
    assert repr(found).startswith("Assignment(1 INFEASIBLE, score -inf; of 2 components 1 with")
