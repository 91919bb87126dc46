"""Closed forms of the logic factors against exact judges, optimality conditions and each other."""

from __future__ import annotations

import numpy as np
import pytest

from logic.local_problems import (
    TYPES,
    Problems,
    jacobians,
    judged,
    jvp_compiled,
    random_problems,
    solve_compiled,
)
from lpsmap_core import (
    FREE,
    LOWER,
    TIED,
    UPPER,
    Direction,
    Factors,
    LocalScores,
    LocalSolution,
    Product,
)
from lpsmap_factors_logic import AtMostOne, Budget, Knapsack, Or, OrOut, Pair, Potts, Xor
from lpsmap_factors_logic.potts_projection import COUNTED

SCALES = [1e-8, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e8]
HUGE = 1e14

every_type = pytest.mark.parametrize("factor_type", TYPES)
every_type_in_array_code = pytest.mark.parametrize(
    "factor_type", [T for T in TYPES if T is not Potts]
)
every_arity = pytest.mark.parametrize("arity", range(1, 7))


def problem(factor_type, a, delta=None, parameters=(), costs=None, eta_v=()):
    """Return one local problem."""
    a = np.array(a, dtype=float)[None]
    return Problems(
        factor_type,
        a,
        np.array(eta_v, dtype=float)[None],
        np.ones_like(a) if delta is None else np.array(delta, dtype=float)[None],
        np.array(parameters, dtype=float).reshape(1, -1),
        None if costs is None else np.array(costs, dtype=float)[None],
    )


def assert_judged(p, tolerance=1e-14):
    solution = solve_compiled(p)
    for i in range(len(p.a)):
        z, v = judged(p, i)
        scale = max(1.0, np.abs(p.a[i][np.abs(p.a[i]) < HUGE / 10]).max(initial=0.0))
        np.testing.assert_allclose(solution.z[i], z, rtol=0, atol=tolerance * scale)
        if (p.eta_v[i] != 0).all():  # a score of 0 leaves v open
            np.testing.assert_allclose(solution.v[i], v, rtol=0, atol=tolerance * scale)


@every_type
@every_arity
@pytest.mark.parametrize("ties", [False, True], ids=["generic", "ties"])
def test_projection_is_the_judges(rng, factor_type, arity, ties):
    for scale in SCALES:
        assert_judged(random_problems(rng, factor_type, arity, 4, scale, ties=ties))


@every_type
def test_small_scores_keep_their_digits(rng, factor_type):
    """What moves with the scores has digits relative to them, not to the box."""
    p = random_problems(rng, factor_type, 5, 20, 1e-8)
    solution = solve_compiled(p)
    for i in range(len(p.a)):
        np.testing.assert_allclose(solution.z[i], judged(p, i)[0], rtol=0, atol=1e-15)
        if (solution.branch[i] == 0) and factor_type in (AtMostOne, Budget, Knapsack):
            np.testing.assert_array_equal(solution.z[i], p.a[i].clip(0))


@every_type
@pytest.mark.parametrize("sign", [-1.0, 1.0], ids=["forbidden", "negated-forbidden"])
def test_forbidden_variables_do_not_spoil_the_others(rng, factor_type, sign):
    for arity in (2, 4, 6):
        for scale in (1e-6, 1.0, 1e3):
            p = random_problems(rng, factor_type, arity, 6, scale)
            if sign > 0 and factor_type in (Budget, Knapsack):
                p.parameters[:, 0] = np.maximum(p.parameters[:, 0], 1.0)
                if factor_type is Knapsack:
                    p.parameters[:, 0] = np.maximum(p.parameters[:, 0], p.link_parameter[:, 0])
            p.a[:, 0] = sign * HUGE
            if sign < 0 and factor_type is Budget:
                p.parameters[:, 0] = np.minimum(p.parameters[:, 0], p.a.shape[1] - 1)
            assert_judged(p)


@every_type
@every_arity
def test_faces_are_what_z_says(rng, factor_type, arity):
    for scale in (1e-6, 1.0, 1e6):
        p = random_problems(rng, factor_type, arity, 50, scale)
        solution = solve_compiled(p)
        m = p.delta * solution.z
        codes = [FREE, LOWER, UPPER, TIED, *([COUNTED] if factor_type is Potts else [])]
        assert np.isin(solution.face, codes).all()
        assert (solution.z[solution.face == LOWER] == 0).all()
        assert (solution.z[solution.face == UPPER] == 1 / p.delta[solution.face == UPPER]).all()
        inside = (solution.face != LOWER) & (solution.face != UPPER)
        assert ((m > 0) & (m < 1))[inside].all()
        assert not np.signbit(solution.z).any()


@every_type
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_earlier_faces_only_save_time(rng, factor_type, scale):
    for arity in (1, 2, 5, 20):
        p, earlier = (random_problems(rng, factor_type, arity, 100, scale) for _ in range(2))
        for start in (solve_compiled(earlier), solve_compiled(p)):
            again, alone = solve_compiled(p, start), solve_compiled(p)
            np.testing.assert_allclose(again.z, alone.z, rtol=0, atol=1e-14 * max(1, scale))
            np.testing.assert_array_equal(again.face, alone.face)
            np.testing.assert_allclose(jacobians(p, again), jacobians(p, alone), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [1e14, 1e18, 1e22, 1e30])
@pytest.mark.parametrize("factor_type", [Xor, Or, AtMostOne, OrOut])
def test_however_huge_a_score_is(rng, factor_type, size):
    """A slot that must be on by far leaves nothing to the others, or does not touch them."""
    for delta in ([1.0, 1.0, 1.0], np.sqrt([3.0, 2.0, 1.0])):
        a = [size, 0.3, 0.4]
        z = solve_compiled(problem(factor_type, a, delta)).z[0] * delta
        free = np.array([0.3, 0.4]) * delta[1:]
        expected = {Or: [1, *free], OrOut: [1, free[0], 1]}.get(factor_type, [1, 0, 0])
        np.testing.assert_allclose(z, expected, rtol=0, atol=1e-15)


# -------------------------------------------------------------------- optimality of long rows


def assert_optimal(p, budget, senses, tolerance=1e-12):
    """Check the optimality conditions of sum-constrained problems (Niculae & Martins, D.1.3)."""
    solution = solve_compiled(p)
    w = p.delta if p.link_parameter is None else p.delta * p.link_parameter
    for i in range(len(p.a)):
        z, face = solution.z[i], solution.face[i]
        scale = max(1.0, np.abs(p.a[i]).max())
        total = w[i] @ z
        movable = (face == FREE) & (w[i] > 0)
        tau = 0.0
        if solution.branch[i] == 1:
            assert abs(total - budget[i]) <= 1e-14 * scale * w[i].sum()
            if not movable.any():
                continue
            tau = np.median((z - p.a[i])[movable] / w[i][movable])
            assert senses[i] * tau >= -tolerance * scale
        else:
            assert senses[i] * (total - budget[i]) >= 0
        ideal = np.clip(p.a[i] + tau * w[i], 0, 1 / p.delta[i])
        np.testing.assert_allclose(z, ideal, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("arity", [40, 1000])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_long_rows_are_optimal(rng, arity, scale):
    for factor_type, sense in ((Xor, 0), (Or, 1), (AtMostOne, -1)):
        p = random_problems(rng, factor_type, arity, 5, scale)
        p.a[0] -= 3 * scale  # or else hardly any disjunction is tight
        assert_optimal(p, np.ones(5), np.full(5, sense))
    p = random_problems(rng, Budget, arity, 10, scale)
    assert_optimal(p, p.parameters[:, 0], -1 * (p.parameters[:, 1] == 0))
    p = random_problems(rng, Knapsack, arity, 10, scale)
    assert_optimal(p, p.parameters[:, 0], np.full(10, -1))


def test_rows_that_fix_one_slot_at_a_time(rng):
    """Scores that double from slot to slot are the slowest there are."""
    doubling = np.concatenate([-np.exp2(np.arange(60)), np.exp2(np.arange(60)), np.zeros(80)])
    rows = np.stack([rng.permutation(doubling) for _ in range(10)])
    for factor_type, parameters in ((Xor, ()), (AtMostOne, ()), (Budget, (90, 1)), (OrOut, ())):
        for row in rows:
            p = problem(factor_type, row, parameters=parameters)
            arrays = factor_type.solve_sparsemap(p.a, p.eta_v, p.delta, p.parameters, None)
            np.testing.assert_allclose(solve_compiled(p).z, arrays.z, rtol=0, atol=1e-12)
    p = problem(Budget, -np.exp2(np.arange(300)), parameters=(7, 1))
    np.testing.assert_array_equal(solve_compiled(p).z[0], np.arange(300) < 7)


def test_a_row_far_from_zero_keeps_its_digits():
    """Only differences of scores matter to Xor, and these are exact here."""
    a = np.array([0.75, 0.5, 0.25, -1.0])
    near, far = solve_compiled(problem(Xor, a)), solve_compiled(problem(Xor, a + 2.0**40))
    np.testing.assert_array_equal(near.face, far.face)
    np.testing.assert_allclose(far.z, near.z, rtol=0, atol=1e-15)


# -------------------------------------------------------------------- special cases


@pytest.mark.parametrize(
    "p, z",
    [
        (problem(Xor, [-3.0]), [1.0]),
        (problem(Or, [-3.0], delta=[2.0]), [0.5]),
        (problem(OrOut, [3.0]), [0.0]),
        (problem(OrOut, [1.0, 0.0]), [0.5, 0.5]),
        (problem(OrOut, [0.0, 1.0]), [0.5, 0.5]),
        (problem(AtMostOne, []), []),
        (problem(Budget, [], parameters=(0, 1)), []),
        (problem(Knapsack, [], parameters=(1,), costs=[]), []),
        (problem(Budget, [3.0, 2.0], parameters=(0, 0)), [0.0, 0.0]),
        (problem(Budget, [-3.0, -2.0], parameters=(2, 1)), [1.0, 1.0]),
        (problem(Budget, [0.3, 2.0], parameters=(7, 0)), [0.3, 1.0]),
        (problem(Knapsack, [0.5, 2.0], parameters=(0,), costs=[0.0, 1.0]), [0.5, 0.0]),
        (problem(Knapsack, [0.5, 2.0], parameters=(0,), costs=[0.0, 0.0]), [0.5, 1.0]),
        (problem(Pair, [0.9, 0.8], eta_v=[-0.3]), [0.6, 0.5]),
        (problem(Pair, [0.4, 0.4], eta_v=[0.0]), [0.4, 0.4]),
    ],
)
def test_by_hand(p, z):
    np.testing.assert_allclose(solve_compiled(p).z[0], z, rtol=0, atol=1e-15)
    arrays = p.type.solve_sparsemap(p.a, p.eta_v, p.delta, p.parameters, p.link_parameter)
    np.testing.assert_allclose(arrays.z[0], z, rtol=0, atol=1e-15)


def test_a_pair_without_a_score_takes_the_largest_overlap():
    assert solve_compiled(problem(Pair, [0.3, 0.7], eta_v=[0.0])).v == 0.3


# -------------------------------------------------------------------- kernels and array code


def as_tensors(p):
    torch = pytest.importorskip("torch")
    fields = (None if f is None else torch.from_numpy(np.array(f)) for f in p[1:])
    return Problems(p.type, *fields)


@every_type_in_array_code
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_array_code_is_the_kernels(rng, factor_type, library):
    for arity in (1, 2, 3, 6, 17):
        for scale in SCALES:
            p = random_problems(rng, factor_type, arity, 20, scale)
            expected = solve_compiled(p)
            d_u, d_v = rng.normal(size=p.a.shape), rng.normal(size=p.eta_v.shape)
            expected_jvp = jvp_compiled(p, expected, d_u, d_v)
            q = p if library == "numpy" else as_tensors(p)
            got = factor_type.solve_sparsemap(*q[1:])
            assert got.face.dtype == got.branch.dtype == (np.int8 if q is p else got.face.dtype)
            d = (d_u, d_v) if q is p else as_tensors(p._replace(a=d_u, eta_v=d_v))[1:3]
            got_jvp = factor_type.jvp(got, *d, *q[3:])
            got = LocalSolution(*map(np.asarray, got))
            atol = 1e-14 * max(1.0, scale)
            np.testing.assert_allclose(got.z, expected.z, rtol=0, atol=atol)
            np.testing.assert_allclose(got.v, expected.v, rtol=0, atol=atol)
            np.testing.assert_array_equal(got.face, expected.face)
            np.testing.assert_array_equal(got.branch, expected.branch)
            for mine, theirs in zip(got_jvp, expected_jvp, strict=True):
                np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-12, atol=1e-13)


@every_type_in_array_code
def test_array_code_in_single_precision(rng, factor_type):
    torch = pytest.importorskip("torch")
    p = random_problems(rng, factor_type, 5, 200)
    single = Problems(p.type, *(None if f is None else f.float() for f in as_tensors(p)[1:]))
    solution = factor_type.solve_sparsemap(*single[1:])
    assert solution.z.dtype == torch.float32
    np.testing.assert_allclose(solution.z.numpy(), solve_compiled(p).z, rtol=0, atol=3e-6)
    out_u, out_v = factor_type.jvp(solution, single.a, single.eta_v, *single[3:])
    assert out_u.dtype == torch.float32


@every_type_in_array_code
def test_array_code_never_looks_at_numbers(rng, factor_type):
    """Tensors without data, on a device of their own: nothing waits for one, nothing leaves it."""
    torch = pytest.importorskip("torch")
    p = random_problems(rng, factor_type, 5, 3)
    q = Problems(p.type, *(None if f is None else f.to("meta") for f in as_tensors(p)[1:]))
    solution = factor_type.solve_sparsemap(*q[1:])
    assert {field.device.type for field in solution} == {"meta"}
    assert solution.z.shape == (p.a.shape) and solution.z.dtype == torch.float64
    out_u, out_v = factor_type.jvp(solution, q.a, q.eta_v, *q[3:])
    assert out_u.shape == p.a.shape and out_v.shape == p.eta_v.shape


@every_type
def test_rows_that_are_not_asked_for_stay(rng, factor_type):
    p = random_problems(rng, factor_type, 4, 6)
    all_of_them = solve_compiled(p)
    z, v = np.full(p.a.size, -7.0), np.full(p.eta_v.size, -7.0)
    face, branch = np.full(p.a.size, 9, dtype=np.int8), np.full(6, 9, dtype=np.int8)
    rows, factors, scores = p.rows[1::2].copy(), p.factors(), p.scores()
    factor_type.projection_kernel(rows, factors, scores, LocalSolution(z, v, face, branch))
    np.testing.assert_allclose(z.reshape(p.a.shape)[1::2], all_of_them.z[1::2], atol=1e-15)
    assert (z.reshape(p.a.shape)[::2] == -7).all()
    assert (branch[::2] == 9).all() and (branch[1::2] != 9).all()
    out_u, out_v = np.full(p.a.size, -7.0), np.full(p.eta_v.size, -7.0)
    direction = Direction(scores.delta, face, branch, scores.a, scores.eta_v)
    factor_type.jvp_kernel(rows, factors, direction, Product(out_u, out_v))
    assert (out_u.reshape(p.a.shape)[::2] == -7).all()
    assert (out_u.reshape(p.a.shape)[1::2] != -7).all()


def test_ragged_rows(rng):
    """Rows of different lengths in one call are the rows one by one."""
    lengths = rng.integers(1, 9, 30)
    offsets = np.append(0, np.cumsum(lengths))
    a, delta = rng.normal(size=offsets[-1]), np.sqrt(rng.integers(1, 4, offsets[-1]))
    for factor_type in (Xor, Or, AtMostOne, OrOut):
        z, face = np.empty(len(a)), np.empty(len(a), dtype=np.int8)
        none = np.empty(0)
        factors = Factors(
            *(offsets, np.zeros(31, dtype=np.int64), np.empty((30, 0)), none),
            *(np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.int64)),
        )
        solution = LocalSolution(z, none, face, np.empty(30, dtype=np.int8))
        scores = LocalScores(a, delta, none)
        factor_type.projection_kernel(np.arange(30), factors, scores, solution)
        for lo, hi in zip(offsets[:-1], offsets[1:], strict=True):
            alone = solve_compiled(problem(factor_type, a[lo:hi], delta[lo:hi]))
            np.testing.assert_allclose(z[lo:hi], alone.z[0], rtol=0, atol=1e-15)
            np.testing.assert_array_equal(face[lo:hi], alone.face[0])
