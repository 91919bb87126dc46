"""The direct projection onto tree polytopes against the active set, enumeration and optimality."""

from __future__ import annotations

import numpy as np
import pytest

import judges
from checks import SLOW
from lpsmap_core import ConvergenceWarning, FactorGraph, Status
from lpsmap_core.api import build_layout, row_values, row_view, slot_values, slots_of
from lpsmap_core.local.active.sets import ActiveSets
from lpsmap_core.local.solvers import local_solver
from lpsmap_factors_struct import DepTree
from lpsmap_factors_struct.arborescence_polytope import ascent
from lpsmap_jit import tiers

NOTHING = np.empty(0)


class Problem:
    """Local problems of trees with scores `a` and scales `delta`, of shape (batch, n, n[, K])."""

    def __init__(self, a, delta, **options):
        self.a, self.delta = a, np.broadcast_to(delta, a.shape).copy()
        self.rows = np.arange(len(a))
        self.graph = FactorGraph()
        self.factor = self.graph.add(DepTree(self.graph.variable(a.shape), **options))
        self.bucket = build_layout(self.graph.n_variables, [self.factor]).buckets[0]

    def links(self, values):
        return np.ascontiguousarray(slot_values(self.factor, values))

    def solver(self, generic=False):
        make = ActiveSets if generic else local_solver
        return make(self.bucket, self.links(self.delta))

    def solve(self, generic=False, solver=None):
        solver = solver or self.solver(generic)
        z = np.full(self.bucket.n_links, np.nan)
        solver.solve(self.rows, self.links(self.a), NOTHING, z, NOTHING, 100_000)
        assert not solver.unsolved().size
        return z, solver

    def jvp(self, solver, d):
        out = np.full(self.bucket.n_links, np.nan)
        solver.jvp(self.rows, self.links(d), NOTHING, out, NOTHING)
        return out

    def gap(self, z):
        """How far the best tree beats the solution in its gradient: zero at the optimum.

        A point outside of the polytope can beat all trees, so the difference counts in both ways.
        """
        gradient = (self.links(self.a) - z) / self.links(self.delta)
        x = z * self.links(self.delta)
        worst = 0.0
        for row in self.rows:
            slots = slots_of(self.factor, row)
            view = row_view(self.factor, int(row))
            scores = row_values(self.factor, int(row), gradient[slots])
            m, _ = view.vertex(view.solve_map(scores, NOTHING))
            worst = max(worst, abs(gradient[slots] @ (np.ravel(m) - x[slots])))
        return worst


def draw(rng, batch, n, labels=()):
    """Scores of all kinds in turn: plain, integers, at odd scales, offset, limited, in cycles."""
    a = rng.standard_normal((batch, n, n, *labels))
    shape = (1,) * (a.ndim - 1)
    a *= 3.0 ** rng.integers(-2, 4, size=(batch, *shape))
    a[1::6] = rng.integers(-2, 3, size=a[1::6].shape)
    a[2::6] *= 10.0 ** rng.uniform(-8, 8, size=(len(a[2::6]), *shape))
    a[3::6] += 1e3 * rng.standard_normal((len(a[3::6]), n, *shape[1:]))
    limited = a[4::6]
    limited[rng.random(limited.shape) < 0.3] = -1e6
    limited[rng.random(limited.shape) < 0.1] = 1e6
    a[5::6] -= rng.uniform(0, 5) * np.abs(np.subtract.outer(np.arange(n), np.arange(n))).reshape(
        n, n, *(1,) * len(labels)
    )
    delta = np.sqrt(rng.integers(1, 5, size=a.shape)) * rng.choice([1.0, 1.0, 0.3, 7.0])
    return a, delta


def check_against_the_active_set(rng, batch, n, labels=(), **options):
    a, delta = draw(rng, batch, n, labels)
    problem = Problem(a, delta, labelled=bool(labels), **options)
    z, solver = problem.solve()
    expected, active_set = problem.solve(generic=True)
    scale = np.maximum(1.0, np.abs(a)).reshape(batch, -1).max(axis=1)
    error = np.abs(problem.links(problem.delta) * (z - expected)).reshape(batch, -1).max(axis=1)
    # the active set loses digits among forced arcs that exclude each other
    assert (error <= 1e-9 + 1e-12 * scale).all(), (n, options, error.max(), error.argmax())
    sums = (problem.links(problem.delta) * z).reshape(batch, n, -1).sum(axis=-1)
    np.testing.assert_allclose(sums, 1.0, rtol=0, atol=1e-9)
    again, _ = problem.solve(solver=solver)
    np.testing.assert_allclose(again, z, rtol=0, atol=1e-9 * max(1.0, 1.0 / delta.min()))
    return problem, z, solver, active_set


def test_a_step_goes_on_where_the_dual_bends_right_away():
    """A Newton step that another one takes back to its start was once called progress."""
    a, delta = draw(np.random.default_rng(0), 2000, 12)
    problem = Problem(a[558:559], delta[558:559])
    z, _ = problem.solve()
    assert problem.gap(z) < 1e-12


OPTIONS = [{}, {"single_root": True}, {"packed": False}, {"packed": False, "single_root": True}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 9])
def test_agrees_with_the_active_set(rng, draws, n, options):
    check_against_the_active_set(rng, draws // 8, n, **options)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 12])
def test_agrees_with_the_active_set_on_many_draws(rng, n, options):
    check_against_the_active_set(rng, SLOW, n, **options)


@pytest.mark.parametrize("options", OPTIONS)
def test_labels(rng, draws, options):
    for n in (1, 3, 6):
        check_against_the_active_set(rng, draws // 10, n, (3,), **options)


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_solves_the_quadratic_program(rng, n, single_root):
    vertices, none = judges.trees(n, single_root=single_root)
    a, delta = draw(rng, 18, n)
    a = np.clip(a, -1e3, 1e3)
    z, _ = Problem(a, delta, single_root=single_root).solve()
    for row, found in enumerate(z.reshape(len(a), -1)):
        expected, _ = judges.project_polytope(
            vertices, none, a[row].reshape(-1), NOTHING, delta[row].reshape(-1)
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("scale", [1.0, 3.0, 30.0, 1e4])
@pytest.mark.parametrize("n", [30, 100])
def test_long_sentences_agree_with_the_active_set(rng, n, scale, single_root):
    problem = Problem(scale * rng.standard_normal((2, n, n)), 1.0, single_root=single_root)
    np.testing.assert_allclose(
        problem.solve()[0], problem.solve(generic=True)[0], rtol=0, atol=1e-9
    )


def test_equal_scores_give_every_arc_the_same():
    for n in (2, 3, 10, 40):
        for score in (0.0, -3.0, 1e8):
            z, _ = Problem(np.full((1, n, n), score), 1.0).solve()
            np.testing.assert_allclose(z, 1.0 / n, rtol=0, atol=1e-12)


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("spread", [1e-8, 1e-3, 0.05])
def test_nearly_uniform_scores(rng, spread, single_root):
    """An active set would hold thousands of trees."""
    problem = Problem(spread * rng.standard_normal((2, 60, 60)), 1.0, single_root=single_root)
    z, _ = problem.solve()
    assert problem.gap(z) <= 1e-10


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("scale", [1e-2, 0.3, 1.0, 30.0, 1e4])
def test_cycles_in_cycles(scale, single_root):
    """Words attract each other the more the closer they are."""
    n = 24
    position = np.cumsum(1.0 + 0.3 * np.arange(n))
    a = -np.abs(position[:, None] - position)
    np.fill_diagonal(a, -1e3 - np.arange(n))
    problem = Problem(scale * a[None], 1.0, single_root=single_root)
    z, _ = problem.solve()
    assert problem.gap(z) <= 1e-10 * max(1.0, 1e3 * scale)
    expected, _ = problem.solve(generic=True)
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-8)


def test_two_words_that_prefer_each_other():
    """One is the other's head, or the other way round: they share what enters from the root."""
    a = np.array([[[0.0, 3.0], [3.0, 0.0]]])
    z, solver = Problem(a, 1.0).solve()
    np.testing.assert_allclose(z, [0.5, 0.5, 0.5, 0.5], rtol=0, atol=1e-14)
    d = np.array([[[1.0, 0.0], [0.0, 0.0]]])
    product = Problem(a, 1.0).jvp(solver, d)
    np.testing.assert_allclose(product, [0.25, -0.25, 0.25, -0.25], rtol=0, atol=1e-14)


def test_contradictory_masks_end_in_rows_that_sum_to_one():
    a = np.full((2, 5, 5), -1e6)
    a[0, [0, 1, 2, 3, 4], [1, 2, 3, 4, 0]] = 1e6  # a forced cycle
    z, _ = Problem(a, 1.0).solve()
    np.testing.assert_allclose(z.reshape(2, 5, 5).sum(axis=-1), 1.0, rtol=0, atol=1e-12)
    assert Problem(a, 1.0).gap(z) <= 1e-6


def test_sentences_of_different_lengths(rng):
    lengths = np.array([4, 0, 9, 1, 6])
    a, delta = draw(rng, 5, 9)
    together = Problem(a, delta, lengths=lengths)
    z, _ = together.solve()
    for row, n in enumerate(lengths):
        alone, _ = Problem(a[row : row + 1, :n, :n], delta[row : row + 1, :n, :n]).solve()
        assert (z[slots_of(together.factor, row)] == alone).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_non_finite_scores_end_in_some_answer(rng):
    """The engine never asks; but a kernel must not hang if somebody does."""
    for bad in (np.nan, np.inf, -np.inf):
        a = rng.standard_normal((3, 6, 6))
        a[0, 2, 3] = bad
        a[1, 4] = bad
        a[2] = bad
        for single_root in (False, True):
            problem, z = Problem(a, 1.0, single_root=single_root), np.empty(a.size)
            problem.solver().solve(problem.rows, problem.links(a), NOTHING, z, NOTHING, 100_000)


# -------------------------------------------------------------------- derivatives


@pytest.mark.parametrize("options", OPTIONS)
def test_jacobians_are_orthogonal_projections(rng, options):
    for n in (1, 2, 5, 9):
        a, delta = draw(rng, 24, n)
        problem = Problem(a, delta, **options)
        _, solver = problem.solve()
        d, e = rng.standard_normal((2, *a.shape))
        once = problem.jvp(solver, d)
        np.testing.assert_allclose(problem.jvp(solver, once.reshape(a.shape)), once, atol=1e-11)
        across = (once * e.reshape(-1)).reshape(len(a), -1).sum(axis=1)
        back = (problem.jvp(solver, e) * d.reshape(-1)).reshape(len(a), -1).sum(axis=1)
        np.testing.assert_allclose(across, back, rtol=0, atol=1e-11)


@pytest.mark.parametrize("labels", [(), (2,)])
@pytest.mark.parametrize("options", OPTIONS)
def test_jacobians_agree_with_the_active_set(rng, draws, options, labels):
    for n in (2, 4, 7):
        shape = (draws // 10, n, n, *labels)
        scale = 3.0 ** rng.integers(-1, 2, size=(shape[0], *(1,) * (len(shape) - 1)))
        a = scale * rng.standard_normal(shape)
        problem = Problem(a, np.sqrt(rng.integers(1, 4, shape)), labelled=bool(labels), **options)
        _, solver = problem.solve()
        _, active_set = problem.solve(generic=True)
        d = rng.standard_normal(shape)
        np.testing.assert_allclose(
            problem.jvp(solver, d), problem.jvp(active_set, d), rtol=0, atol=1e-8
        )


@pytest.mark.parametrize("single_root", [False, True])
def test_jacobian_is_the_derivative(rng, single_root):
    checked = 0
    for n in (3, 8, 25):
        for _ in range(10):
            a, direction = rng.standard_normal((2, 1, n, n))

            def solve(x):
                return Problem(x, 1.0, single_root=single_root).solve()[0]

            derivative, smooth = judges.directional_derivative(solve, a, direction)
            if smooth:
                problem = Problem(a, 1.0, single_root=single_root)
                product = problem.jvp(problem.solve()[1], direction)
                assert np.abs(product - derivative).max() <= 1e-6
                checked += 1
    assert checked >= 15


def test_kinks_that_make_newton_steps_short() -> None:
    """Many words score each other as head alike: 145 cuts, and 190 steps in one of 182 rounds."""
    rng = np.random.default_rng(416)
    n, rank = int(rng.integers(60, 160)), int(rng.integers(3, 40))
    scale = 10.0 ** rng.uniform(0.0, 1.0)
    words = rng.normal(size=(n, rank))
    noise = 10.0 ** rng.uniform(-2.0, 0.0)
    scores = scale * (words @ words.T / np.sqrt(rank) + noise * rng.normal(size=(n, n)))
    rng.uniform()
    scores[np.arange(n), np.arange(n)] -= scale * rng.uniform(0.0, 6.0)
    problem = Problem(scores[None], 1.0)
    z, _ = problem.solve()
    assert problem.gap(z) < 1e-10


@pytest.mark.skipif(not tiers.CAN_INTERPRET, reason="interpreted kernels need NumPy 2")
def test_a_projection_that_ends_early_is_not_called_solved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = np.random.default_rng(0).normal(size=(2, 6, 6))
    scores[0, :, 0] += 20.0  # the other tree needs no cut
    scores[1, :3, :3] += 3.0

    def statuses() -> list[Status]:
        graph = FactorGraph()
        u = graph.variable_from(scores)
        graph.add(DepTree(u))
        with tiers.interpreted():
            return list(graph.solve().status)

    assert statuses() == [Status.SOLVED] * 2
    monkeypatch.setattr(ascent, "MAX_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="INNER_ITERATION_LIMIT"):
        assert statuses() == [Status.SOLVED, Status.INNER_ITERATION_LIMIT]
