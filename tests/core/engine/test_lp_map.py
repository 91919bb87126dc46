"""Without the quadratic term: LP-MAP, which is exact on a forest of factors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import judges
from lpsmap import AtMostOne, Dense, FactorGraph, Potts, Solution, Xor
from lpsmap_core.engine.compiled import CompiledEngine
from lpsmap_core.engine.options import Options
from lpsmap_core.solution.solve import solve_laid_out
from random_graphs import KINDS, Declared, RandomGraph, random_structures

FloatArray = npt.NDArray[np.float64]

WHOLE = [kind for kind in [*KINDS, "Sequence"] if kind not in ("Knapsack", "DepTree")]
"""Types of few variables whose structures are zeros and ones."""

MAX_VARIABLES = 15


def lp_map(graph: FactorGraph, tol: float = 1e-8) -> Solution:
    """Solve a graph without the quadratic term."""
    additionals = [graph.additional_scores(factor) for factor in graph.factors]
    options = Options(quadratic=0.0, tol=tol, max_iter=5000)
    layout = graph._laid_out()
    given = graph.factors, graph.flat_scores(), additionals, options
    return solve_laid_out(CompiledEngine(), layout, *given)


def draw_forest(seed: int) -> RandomGraph:
    """Draw a graph in which factors share single variables, without loops."""
    rng = np.random.default_rng(seed)
    assignment = rng.integers(0, 2, size=MAX_VARIABLES)
    n_variables, declared = 1, []
    scale = float(rng.choice([0.01, 1.0, 100.0]))
    for _ in range(int(rng.integers(1, 7))):
        kind, m, n, parameters = random_structures(rng, str(rng.choice(WHOLE)))
        arity = m.shape[1]
        if n_variables + arity - 1 > MAX_VARIABLES:
            continue
        new = np.arange(n_variables, n_variables + arity - 1)
        variables = rng.permutation([int(rng.integers(n_variables)), *new])
        negated = assignment[variables] != m[rng.integers(len(m))]
        eta_v = scale * rng.normal(size=n.shape[1])
        declared.append(Declared(kind, variables, negated, m, n, eta_v, parameters))
        n_variables += arity - 1
    return RandomGraph(scale * rng.normal(size=n_variables), declared)


def best_assignment(graph: RandomGraph) -> tuple[FloatArray, float]:
    """Return the best assignment of all variables, and its score, by trying all."""
    tried = judges.binary_vectors(len(graph.eta))
    score = tried @ graph.eta
    for factor in graph.declared:
        own = np.where(factor.negated, 1.0 - factor.m, factor.m)
        fits = (tried[:, None, factor.variables] == own).all(axis=2)
        score += np.where(fits, factor.n @ factor.eta_v, -np.inf).max(axis=1)
    return tried[score.argmax()], float(score.max())


@pytest.mark.parametrize("seed", range(60))
def test_a_forest_of_factors_is_solved_exactly(seed: int) -> None:
    graph = draw_forest(seed)
    expected, score = best_assignment(graph)
    solution = lp_map(graph.build()[0])
    assert solution.ok, solution
    np.testing.assert_allclose(solution.values, expected, rtol=0, atol=1e-6)
    scale = max(1.0, abs(score))
    assert solution.objective.sum() == pytest.approx(score, abs=1e-5 * scale)
    assert (solution.objective + solution.gap).sum() >= score - 1e-5 * scale
    np.testing.assert_array_equal(solution.vjp(np.ones(len(expected)))[0], 0.0)


def test_copies_that_agree_end_the_loop() -> None:
    """Over-relaxed means would near them by .6 an iteration: 27 more for six digits."""
    extra = []
    for seed in range(60):
        graph = draw_forest(seed).build()[0]
        rough, tight = lp_map(graph, 1e-4).iterations, lp_map(graph, 1e-10).iterations
        extra.append((tight - rough).max())
    assert np.mean(np.asarray(extra) <= 1) >= 0.95, extra


def test_without_the_quadratic_term_no_distance_is_bounded() -> None:
    graph = FactorGraph()
    graph.add(Xor(graph.variable_from([1.0, 0.9, 0.0])))
    solution = lp_map(graph)
    np.testing.assert_allclose(solution.values, [1.0, 0.0, 0.0], rtol=0, atol=1e-6)
    assert np.isinf(solution.error_bound).all()
    (found,) = solution.structures(graph.factors[0])
    np.testing.assert_allclose(found.probabilities, [1.0], atol=1e-6)


def test_scores_of_zero_have_a_step_size() -> None:
    graph = FactorGraph()
    u = graph.variable((2, 3))
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    solution = lp_map(graph)
    assert solution.ok
    np.testing.assert_allclose(solution.objective, 0.0, atol=1e-9)


def test_a_matching_without_ties_is_whole(rng: np.random.Generator) -> None:
    """Its constraints are totally unimodular, loops or not."""
    graph = FactorGraph()
    scores = rng.standard_normal((4, 5))
    u = graph.variable_from(scores)
    graph.add(Xor(u))
    graph.add(AtMostOne(u, axis=0))
    values = lp_map(graph).values
    np.testing.assert_allclose(values, np.round(values), atol=1e-6)
    np.testing.assert_allclose(values.reshape(4, 5).sum(axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e8, 1e14])
def test_large_scores_among_zeros_are_no_masks(scale: float) -> None:
    graph = FactorGraph()
    u = graph.variable_from(scale * np.array([0.0, 1.5, 0.5, 0.5, 1.5, -1.0, 2.0]))
    table = scale * np.array([[-0.5, 0.5, -2.0], [-1.0, 2.0, 0.0]])
    graph.add(Dense([~u[[5, 2]], ~u[[1, 4, 0]]], table))
    graph.add(Potts(u[[6, 0]], u[[3, 5]], 0.5 * scale))
    found = graph.solve_map()
    best = graph.solve_map(exact=True)
    assert best.ok
    assert found.objective + found.gap >= best.score * (1.0 - 1e-9)
    np.testing.assert_allclose(found.objective, best.score, rtol=1e-6)
