"""The judges against closed forms, against each other, and against solvers of other families."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import numpy.typing as npt
import pytest
import quadprog

import judges
from judges import Vertices

FloatArray = npt.NDArray[np.float64]

SCALES = [1e-8, 1e-3, 1.0, 1e3, 1e8]


def simplex_projection(a: FloatArray) -> FloatArray:
    """Project onto the simplex by a sort."""
    descending = np.sort(a)[::-1]
    levels = (np.cumsum(descending) - 1) / np.arange(1, len(a) + 1)
    return np.maximum(a - levels[np.flatnonzero(descending > levels)[-1]], 0)


# -------------------------------------------------------------------- project_polytope


@pytest.mark.parametrize("scale", SCALES)
def test_projection_on_a_simplex_is_the_sorted_one(scale: float) -> None:
    rng = np.random.default_rng(0)
    for k in range(1, 7):
        a = scale * rng.normal(size=k)
        z, p = judges.project_polytope(*judges.xor(k), a, [], np.ones(k))
        np.testing.assert_allclose(z, simplex_projection(a), atol=1e-15 * max(1, scale))
        np.testing.assert_array_equal(np.sort(z), np.sort(p))


@pytest.mark.parametrize("scale", SCALES)
def test_projection_on_a_box_clips(scale: float) -> None:
    rng = np.random.default_rng(1)
    a, delta = scale * rng.normal(size=4), np.sqrt([1.0, 2.0, 3.0, 4.0])
    m = judges.binary_vectors(4)
    z, _ = judges.project_polytope(m, np.zeros((16, 0)), a, [], delta)
    np.testing.assert_allclose(z, np.clip(a, 0, 1 / delta), rtol=1e-15, atol=0)


@pytest.mark.parametrize("scale", SCALES)
def test_projection_with_weights_has_the_closed_form(scale: float) -> None:
    # Two variables, m1 + m2 = 1: a segment, on which the solution is a clipped ratio.
    rng = np.random.default_rng(2)
    for _ in range(50):
        a, delta = scale * rng.normal(size=2), np.sqrt(rng.integers(1, 5, size=2).astype(float))
        z, _ = judges.project_polytope(*judges.xor(2), a, [], delta)
        w = 1 / delta
        m1 = np.clip((w[0] * a[0] - w[1] * (a[1] - w[1])) / (w @ w), 0, 1)
        expected = np.array([m1, 1 - m1]) / delta
        np.testing.assert_allclose(z, expected, atol=1e-15 * max(1, scale))


def test_projection_agrees_with_a_dual_active_set() -> None:
    # A budget written by inequalities, for quadprog (Goldfarb & Idnani 1983).
    rng = np.random.default_rng(3)
    for _ in range(50):
        a, delta = rng.normal(size=5), np.sqrt(rng.integers(1, 5, size=5).astype(float))
        z, _ = judges.project_polytope(*judges.budget(5, 2), a, [], delta)
        constraints = np.vstack([np.eye(5), -np.eye(5), -delta])
        bounds = np.concatenate([np.zeros(5), -1 / delta, [-2.0]])
        expected = quadprog.solve_qp(np.eye(5), a, constraints.T, bounds)[0]
        np.testing.assert_allclose(z, expected, atol=1e-13)


def test_projection_takes_the_better_of_vertices_that_share_their_variables() -> None:
    m = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    n = np.eye(4)
    z, p = judges.project_polytope(m, n, [0.1, 0.0], [0.0, 0.2, 0.3, -5.0], [1.0, 1.0])
    # The better scores count as scores of the two variables: (0.1 + 0.2, 0.3).
    np.testing.assert_allclose(z, [0.5, 0.5], atol=1e-15)
    np.testing.assert_allclose(p, [0.0, 0.5, 0.5, 0.0], atol=1e-15)


def test_projection_on_a_repulsive_pair_has_the_known_slope() -> None:
    def first(eta_v: FloatArray) -> FloatArray:
        z, _ = judges.project_polytope(*judges.pair(), [0.9, 0.8], eta_v, [1.0, 1.0])
        return z[:1]

    # On the segment m1 + m2 = 1 + m12, both variables move with the score one to one.
    slope = judges.central_difference(first, [-0.3], h=1e-3)
    np.testing.assert_allclose(slope, [[1.0]], atol=1e-9)


def test_projection_of_forbidden_scores_stays_exact() -> None:
    z, _ = judges.project_polytope(*judges.xor(3), [-1e30, 0.3, 0.2], [], [1.0, 1.0, 1.0])
    np.testing.assert_allclose(z, [0.0, 0.55, 0.45], rtol=1e-15)


@pytest.mark.parametrize(
    "vertices", [judges.trees(4), judges.sequences(3, 3), judges.or_out(5), judges.nand(4)]
)
def test_projection_satisfies_the_variational_inequality(vertices: Vertices) -> None:
    m, n = vertices
    rng = np.random.default_rng(4)
    for scale in (1e-6, 1e-1, 1.0, 1e2):
        a, eta_v = scale * rng.normal(size=m.shape[1]), scale * rng.normal(size=n.shape[1])
        delta = np.sqrt(rng.integers(1, 5, size=m.shape[1]).astype(float))
        z, p = judges.project_polytope(m, n, a, eta_v, delta)
        np.testing.assert_allclose(delta * z, m.T @ p, atol=1e-14)
        gradient = (m / delta) @ (a - z) + n @ eta_v
        assert gradient.max() - p @ gradient <= 1e-13 * max(1, scale)


# -------------------------------------------------------------------- solve_graph


def test_graph_of_one_factor_is_its_projection() -> None:
    rng = np.random.default_rng(5)
    for m, n in (judges.xor(4), judges.or_out(4), judges.pair(), judges.trees(3)):
        for scale in (1e-4, 1.0, 1e2):
            k = m.shape[1]
            a, eta_v = scale * rng.normal(size=k), scale * rng.normal(size=n.shape[1])
            mu, (nu,), (p,) = judges.solve_graph(
                a, [(np.arange(k), np.zeros(k, dtype=bool), m, n, eta_v)]
            )
            z, weights = judges.project_polytope(m, n, a, eta_v, np.ones(k))
            np.testing.assert_allclose(mu, z, atol=1e-10)
            np.testing.assert_allclose(nu, n.T @ weights, atol=1e-9)
            np.testing.assert_allclose(m.T @ p, mu, atol=1e-10)


def test_graph_without_factors_clips() -> None:
    mu, nus, ps = judges.solve_graph([-0.5, 0.25, 7.0], [])
    np.testing.assert_array_equal(mu, [0.0, 0.25, 1.0])
    assert nus == ps == []


def test_variable_of_no_factor_is_clipped() -> None:
    factor = ([2, 0], [False, False], *judges.xor(2), [])
    mu, _, _ = judges.solve_graph([0.2, 5.0, 0.4], [factor])
    np.testing.assert_allclose(mu, [0.4, 1.0, 0.6], atol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
def test_acyclic_graph_is_the_projection_on_its_joint_vertices(scale: float) -> None:
    # On a graph without cycles the local polytope is the hull of the joint assignments.
    rng = np.random.default_rng(6)
    slots = [([0, 1], judges.pair()), ([1, 2], judges.pair()), ([2, 3, 4], judges.imply(3))]
    for _ in range(20):
        eta, negated = scale * rng.normal(size=5), [rng.random(len(s)) < 0.5 for s, _ in slots]
        scores = [scale * rng.normal(size=v[1].shape[1]) for _, v in slots]
        factors = [(s, flip, *v, w) for (s, v), flip, w in zip(slots, negated, scores, strict=True)]
        mu, _, _ = judges.solve_graph(eta, factors)

        joint, gains = [], []
        for u in judges.binary_vectors(5):
            rows = [
                np.flatnonzero((v[0] == np.where(flip, 1 - u[s], u[s])).all(axis=1))
                for (s, v), flip in zip(slots, negated, strict=True)
            ]
            if all(len(row) for row in rows):
                joint.append(u)
                gains.append([v[1][r[0]] for (_, v), r in zip(slots, rows, strict=True)])
        additionals = np.array([np.concatenate(g) for g in gains])
        expected, _ = judges.project_polytope(
            joint, additionals, eta, np.concatenate(scores), np.ones(5)
        )
        np.testing.assert_allclose(mu, expected, atol=1e-10)


def test_matching_agrees_with_a_dual_active_set() -> None:
    rng = np.random.default_rng(7)
    rows, columns = 3, 4
    grid = np.arange(rows * columns).reshape(rows, columns)
    one, some = judges.xor(columns), judges.at_most_one(rows)
    factors = [(g, np.zeros(columns, dtype=bool), *one, []) for g in grid]
    factors += [(g, np.zeros(rows, dtype=bool), *some, []) for g in grid.T]
    by_row = np.repeat(np.eye(rows), columns, axis=1)
    by_column = np.tile(np.eye(columns), rows)
    constraints = np.vstack([by_row, -by_column, np.eye(rows * columns)])
    bounds = np.concatenate([np.ones(rows), -np.ones(columns), np.zeros(rows * columns)])
    for _ in range(20):
        eta = rng.normal(size=rows * columns)
        mu, _, ps = judges.solve_graph(eta, factors)
        expected = quadprog.solve_qp(np.eye(rows * columns), eta, constraints.T, bounds, meq=rows)[
            0
        ]
        np.testing.assert_allclose(mu, expected, atol=1e-10)
        assert min(p.min() for p in ps) > -1e-9


def test_frustrated_cycle_of_pairs_has_its_fractional_answer() -> None:
    # Three variables that all repel each other, the smallest graph whose relaxation is not tight.
    edges = list(itertools.combinations(range(3), 2))
    factors = [(e, [False, True], *judges.pair(), [9.0]) for e in edges]
    factors += [(e, [True, False], *judges.pair(), [9.0]) for e in edges]
    mu, nus, _ = judges.solve_graph(np.zeros(3), factors)
    np.testing.assert_allclose(mu, [0.5, 0.5, 0.5], atol=1e-9)
    np.testing.assert_allclose(nus, np.full((6, 1), 0.5), atol=1e-9)


def test_random_loopy_graphs_are_vouched_for() -> None:
    rng = np.random.default_rng(8)
    makers = [judges.at_least_one, judges.at_most_one, judges.or_out, judges.imply, judges.nand]
    for _ in range(60):
        eta, factors = rng.normal(size=8) * 10.0 ** rng.integers(-3, 3), []
        for _ in range(5):
            k = int(rng.integers(2, 5))
            variables = rng.permutation(8)[:k]
            maker = makers[rng.integers(len(makers))]
            factors.append((variables, rng.random(k) < 0.3, *maker(k), []))
        mu, _, ps = judges.solve_graph(eta, factors)
        for (variables, negated, m, _, _), p in zip(factors, ps, strict=True):
            slots = np.where(negated, 1 - mu[variables], mu[variables])
            np.testing.assert_allclose(m.T @ p, slots, atol=1e-8)


def test_contradicting_factors_are_refused() -> None:
    always = ([0], [False], *judges.xor(1), [])
    never = ([0], [True], *judges.xor(1), [])
    with pytest.raises(ArithmeticError, match="contradict"):
        judges.solve_graph([0.3], [always, never])


# -------------------------------------------------------------------- enumerators


@pytest.mark.parametrize("k", range(1, 7))
def test_logic_factors_have_as_many_structures_as_counted(k: int) -> None:
    counts = {
        judges.xor: k,
        judges.at_least_one: 2**k - 1,
        judges.at_most_one: k + 1,
        judges.nand: 2**k - 1,
        judges.imply: 2**k - 1,
        judges.xor_out: k,
        judges.or_out: 2 ** (k - 1),
        judges.and_out: 2 ** (k - 1),
    }
    for maker, count in counts.items():
        m, n = maker(k)
        assert m.shape == (count, k) and n.shape == (count, 0)
        assert len(np.unique(m, axis=0)) == count


def test_budgets_are_binomial() -> None:
    assert len(judges.budget(6, 2)[0]) == comb(6, 0) + comb(6, 1) + comb(6, 2)
    assert len(judges.budget(6, 2, exact=True)[0]) == comb(6, 2)


def test_pair_marks_both_on() -> None:
    m, n = judges.pair()
    np.testing.assert_array_equal(n[:, 0], [0, 0, 0, 1])
    np.testing.assert_array_equal(m[3], [1, 1])


def test_knapsack_has_the_vertices_of_its_relaxation() -> None:
    m, _ = judges.knapsack([2.0, 1.0], 2.5)
    expected = [[0, 0], [0, 1], [0.75, 1], [1, 0], [1, 0.5]]
    np.testing.assert_allclose(m[np.lexsort(m.T[::-1])], expected)


def test_knapsack_of_unit_costs_is_a_budget() -> None:
    m, _ = judges.knapsack(np.ones(4), 2)
    np.testing.assert_array_equal(m, judges.budget(4, 2)[0])


@pytest.mark.parametrize("n", range(1, 6))
def test_trees_are_counted_by_cayley(n: int) -> None:
    assert len(judges.trees(n)[0]) == (n + 1) ** (n - 1)
    assert len(judges.trees(n, single_root=True)[0]) == n ** (n - 1)


def test_unpacked_trees_move_the_root_arc_to_the_front() -> None:
    packed, unpacked = (judges.trees(3, packed=p)[0].reshape(-1, 3, 3) for p in (True, False))
    np.testing.assert_array_equal(unpacked[:, :, 0], packed[:, range(3), range(3)])
    np.testing.assert_array_equal(unpacked[:, 1, 1:], packed[:, 1][:, [0, 2]])


def test_sequences_have_consistent_transitions() -> None:
    m, n = judges.sequences(3, 2)
    m, n = m.reshape(-1, 3, 2), n.reshape(-1, 2, 2, 2)
    assert len(m) == 8
    np.testing.assert_array_equal(n, m[:, :-1, :, None] * m[:, 1:, None, :])


# -------------------------------------------------------------------- derivatives


def test_central_difference_of_a_matrix_function() -> None:
    x = np.array([[0.3, -0.2], [0.5, 0.1]])
    derivative = judges.central_difference(lambda u: u @ u, x)
    direction = np.array([[1.0, 2.0], [-1.0, 0.5]])
    np.testing.assert_allclose(
        np.tensordot(derivative, direction, axes=2), direction @ x + x @ direction, atol=1e-9
    )


def test_directional_derivative_of_a_smooth_function() -> None:
    value, smooth = judges.directional_derivative(np.sin, [0.4], [2.0], h=1e-4)
    np.testing.assert_allclose(value, [2 * np.cos(0.4)], atol=1e-7)
    assert smooth


@pytest.mark.parametrize("at", [0.0, 1e-6, -3.3e-6, 5e-6, 9e-6])
def test_kinks_within_the_step_are_seen(at: float) -> None:
    _, smooth = judges.directional_derivative(np.abs, [at], [1.0], h=1e-5)
    assert not smooth
    _, smooth = judges.directional_derivative(np.abs, [at + 3e-5], [1.0], h=1e-5)
    assert smooth
