"""Matchings by projections: against active sets, optimality, and their own structures."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lpsmap_core import Factor, FactorGraph, Status
from lpsmap_core.api import build_layout
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.solvers import local_solver
from lpsmap_factors_logic import AtMostOne, Xor
from lpsmap_factors_struct import Matching
from lpsmap_factors_struct.birkhoff.matching_records import DENSE, NO_PROJECTION, SMALL

FloatArray = npt.NDArray[np.float64]
NOTHING = np.empty(0)

SHAPES = [(1, 1), (1, 7), (6, 1), (2, 2), (3, 5), (9, 4), (8, 8), (14, 17), (30, 30)]
FULL = ["shorter", "none"]


class Problem:
    """Local problems of matchings with scores `a` and scales `delta`, of shape (batch, m, n)."""

    def __init__(self, a: FloatArray, delta: Any = 1.0, full: Any = "shorter") -> None:
        self.a, self.delta = a, np.broadcast_to(delta, a.shape).copy()
        graph = FactorGraph()
        self.factor = graph.add(Matching(graph.variable(a.shape), full))
        self.bucket = build_layout(graph.n_variables, [self.factor]).buckets[0]
        self.rows = np.arange(len(a))

    def solver(self, generic: bool = False) -> Any:
        make = ActiveSets if generic else local_solver
        return make(self.bucket, self.delta.reshape(-1))

    def solve(self, solver: Any) -> FloatArray:
        z = np.full(self.a.size, np.nan)
        solver.solve(self.rows, self.a.reshape(-1), NOTHING, z, NOTHING, 0)
        assert not solver.unsolved().size
        return z.reshape(self.a.shape)

    def jvp(self, solver: Any, d: FloatArray) -> FloatArray:
        out = np.full(self.a.size, np.nan)
        solver.jvp(self.rows, d.reshape(-1), NOTHING, out, NOTHING)
        return out.reshape(self.a.shape)

    def gap(self, z: FloatArray) -> float:
        """Return how far the best matching beats a solution in its gradient: 0 at the optimum."""
        gradient = (self.a - z) / self.delta
        worst = 0.0
        for row in self.rows:
            factor: Factor = self.factor
            graph = FactorGraph()
            u = graph.variable_from(gradient[row])
            best = graph.add(Matching(u, factor.full)).solve_map(gradient[row], NOTHING)
            x = z[row] * self.delta[row]
            worst = max(
                worst, sum(gradient[row][pair] for pair in best) - (gradient[row] * x).sum()
            )
        return worst


def mixtures(graph: FactorGraph, factor: Matching) -> FloatArray:
    """Return the means of the structures of a solution, which have to be matchings."""
    found = graph.structures(factor)
    m, n = factor.event_shape
    for one in found:
        pairs = one.variables.sum(axis=(1, 2))
        assert (pairs == min(m, n)).all() if factor.full != "none" else (pairs <= min(m, n)).all()
        assert max(one.variables.sum(axis=1).max(), one.variables.sum(axis=2).max()) <= 1.0
    assert all(one.probabilities.min() > 0.0 for one in found)
    assert all(set(np.unique(one.variables)) <= {0.0, 1.0} for one in found)
    return np.array([np.tensordot(one.probabilities, one.variables, 1) for one in found])


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("scale", [1e-6, 1e-2, 0.3, 1.0])
def test_projections_are_the_solutions_of_active_sets(
    m: int, n: int, scale: float, full: str, rng: np.random.Generator
) -> None:
    if m * n > 500 and scale < 0.3:
        pytest.skip("an active set takes seconds")
    a = scale * rng.standard_normal((4, m, n))
    a[1] = scale * rng.integers(-1, 2, size=(m, n))
    delta = np.sqrt(rng.integers(1, 4, size=a.shape))
    delta[0] = 1.0
    problem = Problem(a, delta, full)
    own, generic = problem.solver(), problem.solver(generic=True)
    z, expected = problem.solve(own), problem.solve(generic)
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-10)
    x = z * delta
    equal = [full == "shorter" and m <= n, full == "shorter" and n <= m]
    for axis, tight in ((2, equal[0]), (1, equal[1])):
        sums = x.sum(axis=axis)
        assert sums.max() <= 1.0 + 1e-11
        assert not tight or sums.min() >= 1.0 - 1e-11
    assert x.min() >= 0.0
    assert problem.gap(z) <= 1e-10


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("m, n", [(3, 5), (9, 4), (8, 8)])
def test_products_with_jacobians(m: int, n: int, full: str, rng: np.random.Generator) -> None:
    """Against the active set; away from ties, both have the only derivative."""
    a = 0.2 * rng.standard_normal((20, m, n))
    problem = Problem(a, np.sqrt(rng.integers(1, 4, size=a.shape)), full)
    own, generic = problem.solver(), problem.solver(generic=True)
    problem.solve(own)
    z = problem.solve(generic)
    generic.complete_faces(problem.rows, a.reshape(-1), NOTHING, z.reshape(-1))
    assert (own.methods == DENSE).all()
    d, e = rng.standard_normal((2, *a.shape))
    product = problem.jvp(own, d)
    np.testing.assert_allclose(product, problem.jvp(generic, d), rtol=0, atol=1e-8)
    np.testing.assert_allclose((product * e).sum(), (problem.jvp(own, e) * d).sum(), rtol=1e-10)
    np.testing.assert_allclose(problem.jvp(own, product), product, rtol=0, atol=1e-11)


def test_gradients_are_those_of_differences(rng: np.random.Generator) -> None:
    x, d, step = 0.1 * rng.standard_normal((2, 6, 7)), rng.standard_normal((2, 6, 7)), 1e-6

    def solution(scores: FloatArray) -> Any:
        graph = FactorGraph()
        graph.add(Matching(graph.variable_from(scores)))
        return graph.solve()

    product = solution(x).jvp(d.reshape(-1), [np.zeros((2, 0))])[0]
    difference = (solution(x + step * d).values - solution(x - step * d).values) / (2 * step)
    np.testing.assert_allclose(product, difference, rtol=0, atol=1e-8)


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("m, n", SHAPES)
def test_structures_mix_to_the_marginals(
    m: int, n: int, full: str, rng: np.random.Generator
) -> None:
    for scale in (1e-3, 0.1, 1.0):
        graph = FactorGraph()
        u = graph.variable_from(scale * rng.standard_normal((3, m, n)))
        factor = graph.add(Matching(u, full))
        assert graph.solve().ok
        np.testing.assert_allclose(mixtures(graph, factor), u.value, rtol=0, atol=1e-9)


def test_sharp_scores_keep_active_sets() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 8, 8)) * np.array([50.0, 0.01])[:, None, None]
    own = (problem := Problem(a)).solver()
    problem.solve(own)
    assert own.methods.tolist() == [SMALL, DENSE]


def solved(scores: FloatArray, forced: bool, lines: bool) -> tuple[bool, FloatArray]:
    """Return whether matchings are infeasible, and their marginals, by one factor or by lines."""
    graph = FactorGraph()
    u = graph.variable_from(scores)
    if lines:
        graph.add(Xor(u))
        graph.add(AtMostOne(u, axis=0))
    else:
        graph.add(Matching(u))
    if forced:
        graph.add(Xor(u[0, :1]))
    return graph.solve(tol=1e-10).status[0] is Status.INFEASIBLE, u.value


@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("masked", [-np.inf, -1e9, -1e4])
def test_masks_and_forced_pairs(masked: float, forced: bool, rng: np.random.Generator) -> None:
    for _ in range(10):
        scores = 0.1 * rng.standard_normal((6, 8))
        scores[rng.random(scores.shape) < 0.3] = masked
        infeasible, found = solved(scores, forced, lines=False)
        expected = solved(scores, forced, lines=True)
        assert infeasible == expected[0]
        if not infeasible:
            np.testing.assert_allclose(found, expected[1], rtol=0, atol=1e-7)


@pytest.mark.parametrize("full", FULL)
def test_active_sets_last_until_a_projection_succeeds(full: str, rng: np.random.Generator) -> None:
    problem = Problem(0.1 + 0.01 * rng.standard_normal((2, 6, 6)), full=full)
    own, z = problem.solver(), np.empty(problem.a.size)
    own.solve(problem.rows, problem.a.reshape(-1), NOTHING, z, NOTHING, 3)
    assert len(own.unsolved()) == 2
    own._begin_projections(problem.rows)  # and then the time is up
    found = own.structures(problem.rows)
    structure, slot, value = found.of_variables(np.full(2, 36))
    mixed = np.zeros(z.shape)
    np.add.at(mixed, 36 * found.owner[structure] + slot, found.probability[structure] * value)
    np.testing.assert_allclose(mixed, z, rtol=0, atol=1e-12)


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::lpsmap_core.ConvergenceWarning")
@pytest.mark.parametrize("full", FULL)
def test_structures_after_a_time_limit(full: str, rng: np.random.Generator) -> None:
    scores = 0.02 + 1e-3 * rng.standard_normal((120, 120))
    for seconds in (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 1.0):
        graph = FactorGraph()
        u = graph.variable_from(scores)
        factor = graph.add(Matching(u, full))
        if graph.solve(max_time=seconds).iterations[0]:
            np.testing.assert_allclose(mixtures(graph, factor), u.value[None], rtol=0, atol=1e-9)


@pytest.mark.compiled
@pytest.mark.parametrize("size", [1e3, 1e4])
def test_projections_with_large_offsets(size: float, rng: np.random.Generator) -> None:
    """Offsets of lines that must be matched, or of all pairs if all lines will be."""
    a, offset = 0.01 * rng.standard_normal((1, 64, 64)), size * rng.standard_normal((2, 64))
    cases = (("shorter", offset[0][:, None] + offset[1]), ("none", size))
    for full, by in cases:
        problem, plain = Problem(a + by, full=full), Problem(a)
        own = problem.solver()
        z, expected = problem.solve(own), plain.solve(plain.solver())
        assert own.methods.tolist() == [DENSE]
        np.testing.assert_allclose(z, expected, rtol=0, atol=1e-14 * size)


@pytest.mark.compiled
def test_a_projection_that_fails_leaves_the_active_set() -> None:
    """A pair that must be on has an infinite local score."""
    problem = Problem(np.zeros((1, 5, 5)))
    own = problem.solver()
    problem.solve(own)
    assert own.methods.tolist() == [DENSE]
    problem.a[0, 1, 2] = np.inf
    z = problem.solve(own)
    assert own.methods.tolist() == [NO_PROJECTION]
    assert z[0, 1, 2] == pytest.approx(1.0)
    np.testing.assert_allclose(z[0].sum(axis=1), 1.0, rtol=0, atol=1e-12)


def test_solves_continue_from_multipliers(rng: np.random.Generator) -> None:
    graph = FactorGraph()
    u = graph.variable_from(scores := 0.05 * rng.standard_normal((3, 7, 9)))
    graph.add(Matching(u))
    before = graph.solve()
    for change in (1e-3, 1.0, 300.0):
        changed = change * rng.standard_normal(scores.shape)
        graph.rescore(u, scores + changed)
        warm = graph.solve(warm_start=before).values
        np.testing.assert_allclose(warm, graph.solve().values, rtol=0, atol=1e-11)


def test_coupled_matchings(rng: np.random.Generator) -> None:
    for scale in (0.05, 1.0):
        scores, found = scale * rng.standard_normal((3, 6, 8)), []
        for lines in (False, True):
            graph = FactorGraph()
            u = graph.variable_from(scores)
            if lines:
                graph.add(Xor(u))
                graph.add(AtMostOne(u, axis=-2))
            else:
                graph.add(Matching(u))
            graph.add(AtMostOne(u[:, :, :3].reshape(3, -1)))
            solution = graph.solve(tol=1e-11)
            assert solution.ok
            found.append((u.value, solution.vjp(scores.reshape(-1))[0]))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-7)


@pytest.mark.compiled
@pytest.mark.parametrize("m, n", [(100, 100), (40, 300)])
def test_large_uniform_matchings(m: int, n: int) -> None:
    """Their solutions have tens of thousands of structures."""
    graph = FactorGraph()
    u = graph.variable_from(np.zeros((m, n)))
    graph.add(Matching(u))
    solution = graph.solve()
    assert solution.status[0] is Status.SOLVED
    np.testing.assert_allclose(u.value, 1.0 / n, rtol=0, atol=1e-13)
    gradient = solution.vjp(np.arange(m * n, dtype=np.float64))[0].reshape(m, n)
    np.testing.assert_allclose(gradient.sum(axis=1), 0.0, rtol=0, atol=1e-9)
