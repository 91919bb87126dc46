"""Solvers of whole graphs: programs of graphs, who is chosen, and what is made of answers."""

from __future__ import annotations

import importlib.util
import types
import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp
from scipy.sparse import coo_array

import lpsmap_core
from forks import Server
from lpsmap import AtMostOne, Budget, Dense, DepTree, FactorGraph, Knapsack, Or, Pair, Xor
from lpsmap_core import ConvergenceWarning, Solution, registered
from lpsmap_core.api import installed_decoder
from lpsmap_decode import Answer, Assignment, MapSolver, Program, SolverLimits
from random_graphs import KINDS, all_scores, random_graph

HIGHS = pytest.mark.skipif(
    importlib.util.find_spec("highspy") is None,
    reason="highspy is not installed: the extra [highs]",
)

LOGIC = [kind for kind in KINDS if kind not in ("DepTree", "Polytope")]


class ScipySolver(MapSolver):
    """SciPy's."""

    name: ClassVar[str] = "scipy"

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        shape = len(program.low), len(program.scores)
        matrix = coo_array((program.coefficient, (program.row, program.column)), shape=shape)
        found = milp(
            -program.scores,
            integrality=np.arange(shape[1]) < len(program.variables),
            bounds=Bounds(0.0, program.upper),
            constraints=LinearConstraint(matrix.tocsr(), program.low, program.high),
        )
        if found.status == 2:
            return Answer(None, -np.inf)
        return Answer(found.x[: len(program.variables)], -found.fun)


class WrongSolver(MapSolver):
    """Answers what a test says."""

    name: ClassVar[str] = "wrong"
    answer: ClassVar[Answer] = Answer(None, np.inf)

    def solve(self, program: Program, limits: SolverLimits) -> Answer:
        return self.answer


class MissingSolver(ScipySolver):
    name: ClassVar[str] = "missing"

    @classmethod
    def missing(cls) -> str | None:
        return "nothing is installed."


@pytest.fixture(autouse=True)
def offered() -> Any:
    plugin = types.ModuleType("solvers_of_tests")
    plugin.lpsmap_api_version = 3  # type: ignore[attr-defined]

    @lpsmap_core.hookimpl
    def lpsmap_solvers() -> list[type[MapSolver]]:
        return [ScipySolver, WrongSolver, MissingSolver]

    plugin.lpsmap_solvers = lpsmap_solvers  # type: ignore[attr-defined]
    with registered(plugin):
        yield


def best(graph: FactorGraph, **options: Any) -> Assignment:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = graph.solve_map(exact=True, threads=1, **options)
    assert isinstance(found, Assignment)
    return found


def check(seed: int, solver: str) -> None:
    rng = np.random.default_rng(seed)
    drawn = random_graph(rng, 6, float(rng.choice([0.1, 1.0, 30.0])), LOGIC)
    while len(drawn.eta) > 14:
        drawn = random_graph(rng, 6, 1.0, LOGIC)
    if seed % 3 == 0:
        drawn.eta[rng.integers(len(drawn.eta))] = -np.inf
    tried, scores = all_scores(drawn)
    graph, u, _ = drawn.build()
    found = best(graph, solver=solver)
    size = max(1.0, np.abs(scores[np.isfinite(scores)]).max(initial=0.0))
    if np.isneginf(scores.max()):
        assert not found.found.all(), seed
        assert found.proved.all(), seed
        return
    assert found.ok, (seed, found)
    assert found.solver in (solver, "lpsmap")
    assert found.total == pytest.approx(scores.max(), abs=1e-6 * size), seed
    row = np.flatnonzero((tried == u.value).all(axis=1))
    assert scores[row] == pytest.approx(scores.max(), abs=1e-6 * size), seed


@pytest.mark.parametrize("seed", range(30))
def test_programs_have_the_best_assignment_of_all(seed: int) -> None:
    check(seed, "scipy")


@HIGHS
@pytest.mark.parametrize("seed", range(30))
def test_highs_finds_the_best_assignment_of_all(seed: int) -> None:
    check(seed, "highs")


@pytest.mark.parametrize("solver", ["scipy", "lpsmap"])
def test_tables_are_programs_too(solver: str) -> None:
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(3, 3, 3))
    tables[0, 0] = -np.inf
    scores = rng.normal(size=(4, 3))
    graph = FactorGraph()
    x = graph.variable_from(scores)
    edges = graph.add(Dense([x[[0, 1, 2]], x[[1, 2, 0]]], tables))
    graph.add(Dense([x[3], ~graph.variable(1)], np.ones((3, 1))))
    found = best(graph, solver=solver)
    i, j, k = np.indices((3, 3, 3))
    ring = scores[0][i] + scores[1][j] + scores[2][k]
    ring = ring + tables[0][i, j] + tables[1][j, k] + tables[2][k, i]
    assert found.score[0] == pytest.approx(ring.max())
    assert found.score[1] == pytest.approx(scores[3].max() + 1.0)
    states = x.value[:3].argmax(axis=1)
    assert tuple(states) == np.unravel_index(ring.argmax(), ring.shape)
    assert found.additionals[0][0].reshape(3, 3)[states[0], states[1]] == 1.0
    assert found.structures(edges)[1][0].decoded == {"states": states[[1, 2]].tolist()}


def knapsack(scores: Any) -> FactorGraph:
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Knapsack(u, [2.0, 3.0, 4.0], 5.0))
    graph.add(AtMostOne(u[:2]))
    return graph


def test_who_solved_and_why_is_said() -> None:
    graph = knapsack([1.0, 2.0, 2.5])
    own = best(graph, solver="lpsmap")
    assert (own.solver, own.reason) == ("lpsmap", "was requested")
    assert best(graph, solver="scipy").solver == "scipy"
    assert "max_nodes" in best(graph, max_nodes=10).reason
    tree = FactorGraph()
    tree.add(DepTree(tree.variable((3, 3))))
    assert best(tree).solver == "lpsmap"


@pytest.mark.parametrize("reported", [False, True])
def test_auto_hands_over_what_is_not_proved_at_once(
    reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not somebody asks for the progress of the search before."""
    from lpsmap_decode import exact_decoder
    from lpsmap_decode.solvers import choice

    monkeypatch.setattr(choice, "PREFERRED", "scipy")
    monkeypatch.setattr(exact_decoder, "FIRST_NODES", 1)
    rng = np.random.default_rng(0)
    graph = FactorGraph()
    u = graph.variable_from(rng.normal(size=12))
    i, j = np.triu_indices(12, 1)
    graph.add(Pair(u[i], u[j], rng.normal(size=len(i))))
    graph.add(Budget(u, 4))  # no table: it would be eliminated without a search
    easy = graph.variable_from([1.0, 2.0])
    graph.add(Xor(easy))
    seen: list[int] = []
    progress = (lambda component, _: seen.append(component)) if reported else None
    found = best(graph, progress=progress)
    assert seen == ([0] if reported else [])
    assert found.solver == "scipy"
    assert found.reason == "proves most assignments soon; scipy solves the others"
    assert found.ok
    assert found.n_nodes[1] == 0
    assert found.total == pytest.approx(best(graph, solver="lpsmap").total)
    tree = FactorGraph()
    tree.add(DepTree(tree.variable((3, 3))))
    assert (
        best(tree).reason == "is the only solver because DepTree factors have no linear constraints"
    )


SOLVERS = ["scipy", pytest.param("highs", marks=HIGHS)]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("mask", [-1e4, -1e6, -9e6, -1e9, -1e12])
def test_masks_are_left_out_unless_one_has_to_be_taken(solver: str, mask: float) -> None:
    """Those of scores to which a mask was added differ a little, which counts."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, 5))
    for forced in (False, True):
        given = scores.copy()
        given[1, : 5 if forced else 3] += mask
        graph = FactorGraph()
        u = graph.variable_from(given)
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=0))
        found = best(graph, solver=solver)
        rows, columns = linear_sum_assignment(given, maximize=True)
        assert found.solver == solver
        assert found.ok
        np.testing.assert_array_equal(u.value.argmax(axis=1), columns)
        # a score of -1e12 has digits of 1e-4
        np.testing.assert_allclose(found.total, given[rows, columns].sum(), rtol=1e-12)
        np.testing.assert_allclose(found.bound[0], found.total, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("mask", [0.0, -1e9])
def test_what_contradicts_has_no_assignment_at_all(solver: str, mask: float) -> None:
    graph = FactorGraph()
    u = graph.variable_from(np.random.default_rng(0).normal(size=(4, 3)) + [mask, 0.0, 0.0])
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    found = best(graph, solver=solver)
    assert not found.found.any()
    assert found.bound[0] == -np.inf
    assert found.proved.all()


def test_masks_of_several_sizes_have_an_honest_bound() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[-1e9, -3e9], [-2e9, -5e9]])
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    found = best(graph, solver="scipy")
    assert found.bound[0] >= -5e9
    assert found.total <= -5e9


@HIGHS
@pytest.mark.parametrize("seed", [0, 41, 49, 58])
def test_what_highs_proves_is_the_best(seed: int) -> None:
    """Knapsacks have many assignments that score nearly as much: its own tolerances hide some."""
    rng = np.random.default_rng(seed)
    n, most = 40, 15
    costs = rng.integers(20, 400, size=n)
    noise = (1.0, 1e-2, 1e-4)[seed % 3] * rng.normal(size=n)
    scores = 3.0 * (costs + noise) / costs.sum()
    budget = int(costs.sum() // 3)
    best_by = np.full((most + 1, budget + 1), -np.inf)  # so many are taken, which cost so much
    best_by[0, 0] = 0.0
    for score, cost in zip(scores.tolist(), costs.tolist(), strict=True):
        taken = best_by[:-1, : budget + 1 - cost] + score
        best_by[1:, cost:] = np.maximum(best_by[1:, cost:], taken)
    graph = FactorGraph()
    u = graph.variable_from(scores)
    graph.add(Knapsack(u, costs.astype(float), float(budget)))
    graph.add(Budget(u, most))
    found = best(graph, solver="highs")
    assert found.solver == "highs"
    assert found.ok
    truth = float(best_by.max())
    assert found.bound[0] >= truth - 1e-12
    # the bound has 1e-9 of the scores' sum added, and who stops there may miss as much
    assert found.total >= truth - 1e-8


PRINTS = """
import numpy as np
from lpsmap import AtMostOne, FactorGraph, Xor
graph = FactorGraph()
u = graph.variable_from(np.random.default_rng(0).normal(size=(3, 3)))
graph.add(Xor(u))
graph.add(AtMostOne(u, axis=0))
found = graph.solve_map(exact=True, solver="highs")
assert found.solver == "highs"
print("[1]")
"""


@HIGHS
def test_highs_prints_nothing(warm_server: Server) -> None:
    """Its banner comes from C, and once a process: so it is looked for in a process of its own."""
    done = warm_server.run(PRINTS)
    assert (done.returncode, done.stdout) == (0, "[1]\n"), done.stderr


@pytest.mark.parametrize(
    "answer",
    [
        Answer(None, -np.inf),  # nothing on is allowed
        Answer(np.array([0.0, 1.0, 0.0]), np.inf),
        Answer([0.0, 1.0, 0.0], np.inf),  # type: ignore[arg-type]
        Answer(None, np.inf),
    ],
)
def test_answers_are_judged_by_the_oracles(answer: Answer) -> None:
    """What is wrong with them, the relaxation makes good."""
    WrongSolver.answer = answer
    truth = best(knapsack([1.0, 2.0, 2.5]), solver="lpsmap").total
    found = best(knapsack([1.0, 2.0, 2.5]), solver="wrong")
    assert found.total <= truth + 1e-12
    assert found.bound[0] >= truth - 1e-12


def test_an_infeasible_answer_is_ignored_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = best(knapsack([1.0, 2.0, 2.5]), solver="lpsmap").total
    monkeypatch.setattr(WrongSolver, "answer", Answer(np.array([1.0, 1.0, 0.0]), 3.0))
    words = (
        "solver 'wrong' returned values that violate the constraints of a factor in component 0;"
    )
    with pytest.warns(UserWarning, match=words) as caught:
        found = best(knapsack([1.0, 2.0, 2.5]), solver="wrong")
    assert {warning.filename for warning in caught} == {__file__}
    assert found.total <= truth + 1e-12
    assert found.bound[0] >= truth - 1e-12


def test_a_bound_below_its_own_answer_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WrongSolver, "answer", Answer(np.array([0.0, 1.0, 0.0]), 1.0))
    words = "solver 'wrong' returned bound 1 with values that score 2, in component 0; expected an"
    with pytest.raises(RuntimeError, match=words):
        best(knapsack([1.0, 2.0, 2.5]), solver="wrong")


def test_no_bound_is_weaker_than_that_of_the_relaxation() -> None:
    """Whoever is asked; and what was known before still holds, however short the time."""
    WrongSolver.answer = Answer(None, np.inf)

    def frustrated() -> FactorGraph:
        rng, graph = np.random.default_rng(0), FactorGraph()
        u = graph.variable_from(rng.normal(size=12))
        i, j = np.triu_indices(12, 1)
        graph.add(Pair(u[i], u[j], rng.normal(size=len(i))))
        graph.add(Budget(u, 4))
        return graph

    relaxed = frustrated().solve_map(threads=1)
    assert isinstance(relaxed, Solution)
    known = float(relaxed.objective[0] + relaxed.gap[0])
    found = best(frustrated(), solver="wrong")
    assert found.bound[0] <= known + 1e-6
    graph = frustrated()
    graph.solve_map(threads=1)
    again = best(graph, solver="lpsmap", max_iter=1, max_time=1e-3)
    assert again.bound[0] <= known + 1e-9


def test_bad_scores_are_left_alone() -> None:
    graph = FactorGraph()
    u = graph.variable_from([[1.0, 2.0], [np.nan, 0.0]])
    graph.add(Xor(u))
    found = best(graph, solver="scipy")
    assert found.found.tolist() == [True, False]
    np.testing.assert_array_equal(u.value[0], [0.0, 1.0])
    assert np.isnan(u.value[1]).all()
    assert np.isnan(found.bound[1])


def test_wrong_solvers_are_refused_in_words() -> None:
    graph = knapsack([1.0, 2.0, 2.5])
    with pytest.raises(
        ValueError, match=r"got 'best'; expected one of auto, lpsmap, highs, maxsat, sci"
    ):
        best(graph, solver="best")
    with pytest.raises(ModuleNotFoundError, match="solver: nothing is installed"):
        best(graph, solver="missing")
    tree = FactorGraph()
    tree.add(DepTree(tree.variable((3, 3))))
    with pytest.raises(ValueError, match="DepTree factors have no linear constraints"):
        best(tree, solver="scipy")
    with pytest.raises(ValueError, match=r"a score is above 1e\+07"):
        best(knapsack([1.0, 1e9, 0.0]), solver="scipy")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(None, np.nan), "returned bound nan; expected a number: inf if unknown"),
        (Answer(None, None), "returned bound None; expected a number"),  # type: ignore[arg-type]
        (Answer(np.zeros(2), 1.0), r"returned values of shape \(2,\) .*of shape \(3,\)"),
        (Answer(np.array([0.0, np.nan, 1.0]), 1.0), "returned a value of nan; expected values"),
        (Answer(np.array([0.0, 7.0, 1.0]), 1.0), "returned a value of 7; expected values of 0 and"),
        (Answer(None, 1.0, n_nodes=-1), "returned n_nodes -1; expected a whole number"),
        ((None, 1.0), "returned an object of type tuple; expected an Answer"),
    ],
)
def test_a_solver_that_answers_wrongly_is_named(
    answer: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WrongSolver, "answer", answer)
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from([1.0, 2.0, 3.0])))
    with pytest.raises(RuntimeError, match=f"^solver 'wrong' {words}.*") as caught:
        graph.solve_map(exact=True, solver="wrong")
    assert "bug of test_solvers.WrongSolver, not of the scores" in str(caught.value).replace(
        f"{WrongSolver.__module__}.", "test_solvers."
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"gap": -1.0}, ValueError),
        ({"max_time": "soon"}, TypeError),
        ({"max_nodes": 0.5}, TypeError),
        ({"threads": 0}, ValueError),
        ({"solver": "nobody's"}, ValueError),
    ],
)
def test_bad_options_of_a_search_are_refused_without_one(
    options: dict[str, Any], error: type[Exception]
) -> None:
    check = installed_decoder("exact search").check_options
    check()
    with pytest.raises(error, match=next(iter(options))):
        check(**options)


@HIGHS
@pytest.mark.parametrize("first", [-1.0, -4.0, -1e6])
def test_costs_are_not_mistaken_for_masks(first: float) -> None:
    """Larger costs that the constraints require are minimised, whatever their sizes."""
    rng, scores = np.random.default_rng(0), []
    costs = -rng.integers(5, 10, 20).astype(float)
    costs[0] = first
    sets = np.array([rng.choice(20, 3, replace=False) for _ in range(30)])
    for solver in ("lpsmap", "highs"):
        graph = FactorGraph()
        u = graph.variable_from(costs)
        graph.add(Or(u[sets]))
        graph.add(Or(u))
        best = graph.solve_map(exact=True, solver=solver)
        assert best.ok
        scores.append(best.score)
    np.testing.assert_allclose(*scores, rtol=1e-9)
