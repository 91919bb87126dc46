"""One call of a closed form gives the loop's solution and derivative, bit for bit, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import lpsmap
from lpsmap import Budget, FactorGraph, Knapsack, Solution, Xor
from lpsmap_core import Factor, Variables, kernel
from lpsmap_core.api import DirectSolution, IntArray, solve_directly
from lpsmap_core.kernels.records import Factors, LocalScores, LocalSolution
from lpsmap_jit.tiers import CAN_INTERPRET, interpreted

pytestmark = pytest.mark.compiled

FloatArray = npt.NDArray[np.float64]

KINDS: dict[str, Callable[[Variables], Factor]] = {
    "Xor": Xor,
    "AtMostOne": lpsmap.AtMostOne,
    "Or": lpsmap.Or,
    "columns": lambda u: Xor(u, axis=0),
    "OrOut": lpsmap.OrOut,
    "Budget": lambda u: Budget(u, max(1, u.shape[-1] // 3)),
    "Knapsack": lambda u: Knapsack(u, 1.0 + np.arange(u.shape[-1]) % 3, u.shape[-1] / 3),
}


def solved_directly(solution: Solution, scores: FloatArray | None = None) -> DirectSolution | None:
    """Return the direct solution of a solved graph, for its own scores unless others are given."""
    given = solution.scores if scores is None else scores
    return solve_directly(solution.layout.part, given, lambda: None)


def declared(kind: str, shape: tuple[int, ...], scores: FloatArray) -> FactorGraph:
    """Return a graph of separate factors."""
    graph = FactorGraph()
    u = graph.variable_from(scores.reshape(shape))
    graph.add(KINDS[kind](u))
    return graph


def draw(rng: np.random.Generator, n: int) -> FloatArray:
    """Draw scores: of some scale, perhaps with ties, perhaps with forbidden ones."""
    scores = rng.standard_normal(n) * 10.0 ** rng.integers(-8, 2)
    scores = np.clip(scores, -99.0, 99.0)
    if rng.random() < 0.3:
        scores = np.round(scores)
    if rng.random() < 0.3:
        scores[rng.random(n) < 0.2] = -np.inf
    return scores


@pytest.mark.filterwarnings("ignore::lpsmap.ConvergenceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_the_loop_finds_the_same(kind: str) -> None:
    found = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        shape = int(rng.integers(1, 9)), int(rng.choice([2, 3, 5, 64, 300]))
        graph = declared(kind, shape, draw(rng, shape[0] * shape[1]))
        solution = graph.solve(threads=1)
        direct = solved_directly(solution)
        if direct is None:  # then forbidden variables make a factor infeasible
            assert not solution.ok
            continue
        part, found = solution.layout.part, found + 1
        assert all(status is lpsmap.Status.SOLVED for status in solution.status)
        np.testing.assert_array_equal(direct.marginals, solution.values[part.variables])
        d = rng.standard_normal(len(solution.values))
        product = direct.multiply(part.of_graph(d))
        assert product is not None
        np.testing.assert_array_equal(product, solution.vjp(d)[0][part.variables])
    assert found > 40


@pytest.mark.parametrize("score", [np.nan, np.inf, 101.0, -1e9])
def test_other_scores_are_left_to_an_engine(score: float) -> None:
    scores = np.zeros(6)
    solution = declared("Xor", (2, 3), scores).solve()
    assert solved_directly(solution, scores) is not None
    scores[4] = score
    assert solved_directly(solution, scores) is None


def test_infeasible_factors_are_left_to_an_engine() -> None:
    scores = np.array([0.0, 1.0, -np.inf, -np.inf])
    solution = declared("Xor", (2, 2), np.zeros(4)).solve()
    assert solved_directly(solution, scores) is None


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e150, 1e-150])
def test_vectors_that_need_scaling_are_left_to_an_engine(number: float) -> None:
    direct = solved_directly(declared("Xor", (2, 3), np.zeros(6)).solve())
    assert direct is not None
    d = np.ones(6)
    assert direct.multiply(d) is not None
    d[3] = number
    assert direct.multiply(d) is None


def _negated(graph: FactorGraph) -> None:
    graph.add(Xor(~graph.variable((2, 3))))


def _permuted(graph: FactorGraph) -> None:
    graph.add(Xor(graph.variable((2, 3))[:, ::-1]))


def _coupled(graph: FactorGraph) -> None:
    u = graph.variable((2, 3))
    graph.add(Xor(u))
    graph.add(lpsmap.AtMostOne(u, axis=0))


def _twice(graph: FactorGraph) -> None:
    u = graph.variable(2)
    graph.add(Xor(u[np.array([[0, 0, 1]])]))


def _two_types(graph: FactorGraph) -> None:
    graph.add(Xor(graph.variable(3)))
    graph.add(lpsmap.Or(graph.variable(3)))


def _with_additionals(graph: FactorGraph) -> None:
    graph.add(lpsmap.Pair(graph.variable(1)[0], graph.variable(1)[0], 0.5))


def _iterated(graph: FactorGraph) -> None:
    graph.add(lpsmap.Matching(graph.variable((2, 3))))


@pytest.mark.parametrize(
    "declare", [_negated, _permuted, _coupled, _twice, _two_types, _with_additionals, _iterated]
)
def test_other_graphs_are_left_to_an_engine(declare: Callable[[FactorGraph], None]) -> None:
    graph = FactorGraph()
    declare(graph)
    assert solved_directly(graph.solve()) is None


@pytest.mark.skipif(not CAN_INTERPRET, reason="interpreted kernels need NumPy 2")
def test_interpreted_kernels_are_left_to_an_engine() -> None:
    solution = declared("Xor", (2, 3), np.zeros(6)).solve()
    with interpreted():
        assert solved_directly(solution) is None


def test_a_graph_without_factors() -> None:
    graph = FactorGraph()
    graph.variable(3)
    assert solved_directly(graph.solve()) is None


@kernel
def _twos(rows: IntArray, factors: Factors, scores: LocalScores, solution: LocalSolution) -> None:
    for r in rows:
        for i in range(factors.offsets[r], factors.offsets[r + 1]):
            solution.z[i] = 2.0


class Faulty(Xor):
    """An `Xor` with a closed form that leaves the cube."""

    projection_kernel = staticmethod(_twos)


def test_faulty_closed_forms_are_left_to_an_engine() -> None:
    graph = FactorGraph()
    graph.add(Faulty(graph.variable((2, 3))))
    assert solve_directly(graph._laid_out().part, np.zeros(6), lambda: None) is None
    with pytest.raises(ValueError, match="expected finite numbers, those of variables"):
        graph.solve()
