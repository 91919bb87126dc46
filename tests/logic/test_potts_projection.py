"""The local problem of `Potts` at strengths far from its scores, and at forced states."""

from __future__ import annotations

import numpy as np
import pytest

from logic.local_problems import judged, jvp_compiled, random_problems, solve_compiled
from lpsmap_core import UNSOLVED
from lpsmap_factors_logic import Potts
from lpsmap_factors_logic.potts_projection import ATTRACTIVE, REPULSIVE

HUGE = 1e10

STRENGTHS = [size * sign for size in (1e-8, 1e-3, 1.0, 1e4, 1e8, 1e12) for sign in (1.0, -1.0)]


def assert_judged(p, tolerance):
    solution = solve_compiled(p)
    for i in range(len(p.a)):
        z, v = judged(p, i)
        np.testing.assert_allclose(solution.z[i], z, rtol=0, atol=tolerance)
        np.testing.assert_allclose(solution.v[i], v, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(
        solution.branch, np.where(p.eta_v[:, 0] >= 0, ATTRACTIVE, REPULSIVE)
    )


@pytest.mark.parametrize("strength", STRENGTHS)
def test_strengths_of_any_size(rng, strength):
    """A strength far beyond the scores leaves their digits alone."""
    for n_states in (1, 2, 3, 5):
        for scale in (1e-3, 1.0, 10.0):
            p = random_problems(rng, Potts, 2 * n_states, 10, scale)
            p.eta_v[:] = strength * rng.uniform(0.5, 1.0, p.eta_v.shape)
            assert_judged(p, 1e-13)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_forced_states(rng, strength):
    """One variable's state is forced, or both, to equal or to different states."""
    for slots in ([0], [0, 3], [0, 4], [5]):
        p = random_problems(rng, Potts, 6, 10)
        p.a[:, slots] = HUGE
        p.eta_v[:] = np.clip(strength, -1e8, 1e8) * rng.uniform(0.5, 1.0, p.eta_v.shape)
        assert_judged(p, 1e-13)


@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 10.0, 1e4])
def test_wide_problems_are_optimal(rng, scale):
    """The multipliers of the sums, read off the solution, give it back state by state."""
    for strength in (-3.0, -0.3, 0.3, 3.0):
        p = random_problems(rng, Potts, 400, 20, scale)
        p.eta_v[:] = strength * scale
        solution = solve_compiled(p)
        assert (solution.branch != UNSOLVED).all()
        m = (p.delta * solution.z).reshape(20, 2, 200)
        np.testing.assert_allclose(m.sum(axis=2), 1.0, rtol=0, atol=1e-11)
        for other in rng.dirichlet(np.ones(200), (10, 20, 2)):  # no other point is better
            _assert_better(p, m, other)
            _assert_better(p, m, m + 1e-3 * (other - m))


def _assert_better(p, m, other):
    assert (_value(p, m) >= _value(p, other) - 1e-9 * max(1.0, np.abs(p.a).max() ** 2)).all()


def _value(p, m):
    """Return the values of marginals (F, 2, k), with the best marginals of equal states."""
    z = m.reshape(len(m), -1) / p.delta
    equal = np.minimum(m[:, 0], m[:, 1]).sum(axis=1)
    apart = np.maximum(0.0, m.sum(axis=1) - 1.0).max(axis=1)
    w = p.eta_v[:, 0]
    return (p.a * z - 0.5 * z * z).sum(axis=1) + w * np.where(w >= 0, equal, apart)


def test_problems_with_ties_are_solved(rng):
    """At kinks of the dual function, steps end as well."""
    for arity in (2, 10, 40):
        for ties in (False, True):
            for scale in (1e-3, 1.0, 30.0):
                solution = solve_compiled(random_problems(rng, Potts, arity, 200, scale, ties=ties))
                assert (solution.branch != UNSOLVED).all()
                assert np.isfinite(solution.z).all() and np.isfinite(solution.v).all()


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12])
def test_products_keep_the_digits_of_a_vector_of_any_size(rng, size):
    """Products with small residuals drive the polish."""
    p = random_problems(rng, Potts, 8, 50)
    solution, d_u, d_v = solve_compiled(p), rng.normal(size=p.a.shape), rng.normal(size=(50, 1))
    whole, scaled = (jvp_compiled(p, solution, s * d_u, s * d_v) for s in (1.0, size))
    for expected, got in zip(whole, scaled, strict=True):
        np.testing.assert_allclose(got / size, expected, rtol=0, atol=1e-14)
