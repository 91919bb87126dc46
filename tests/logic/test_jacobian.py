"""Local Jacobians of the logic factors against differences and against what they must be."""

from __future__ import annotations

import numpy as np
import pytest

import judges
from logic.local_problems import (
    TYPES,
    Problems,
    jacobians,
    jvp_compiled,
    random_problems,
    solve_compiled,
)
from lpsmap_factors_logic import Pair

every_type = pytest.mark.parametrize("factor_type", TYPES)


def one(p, i):
    """Return problem `i` alone."""
    costs = None if p.link_parameter is None else p.link_parameter[i : i + 1]
    rows = (field[i : i + 1] for field in (p.a, p.eta_v, p.delta, p.parameters))
    return Problems(p.type, *rows, costs)


def check_derivatives(rng, factor_type, arity, draws, scale):
    """Hold products with local Jacobians against differences; return how many draws had none."""
    p = random_problems(rng, factor_type, arity, draws, scale)
    solution = solve_compiled(p)
    d_u, d_v = rng.normal(size=p.a.shape), rng.normal(size=p.eta_v.shape)
    got = np.concatenate(jvp_compiled(p, solution, d_u, d_v), axis=1)
    k, kinks = p.a.shape[1], 0
    for i in range(len(p.a)):
        alone = one(p, i)

        def solved(x, alone=alone):
            s = solve_compiled(alone._replace(a=x[None, :k], eta_v=x[None, k:]))
            return np.concatenate([s.z, s.v], axis=1)[0]

        point = np.concatenate([p.a[i], p.eta_v[i]])
        direction = np.concatenate([d_u[i], d_v[i]])
        expected, smooth = judges.directional_derivative(solved, point, direction)
        kinks += not smooth
        if smooth:
            np.testing.assert_allclose(got[i], expected, rtol=0, atol=1e-7)
    return kinks


@every_type
@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_jvp_is_the_directional_derivative(rng, draws, factor_type, scale):
    for arity in (1, 2, 3, 5):
        kinks = check_derivatives(rng, factor_type, arity, draws // 10, scale)
        assert kinks < 0.2 * max(draws // 10, 10)


@pytest.mark.slow
@every_type
@pytest.mark.parametrize("arity", range(1, 7))
def test_jvp_on_many_draws(rng, factor_type, arity):
    """42 times 500: 21,000 draws of single factors."""
    assert check_derivatives(rng, factor_type, arity, 500, 1.0) < 50


@every_type
def test_jacobian_is_an_orthogonal_projection(rng, factor_type):
    """Symmetric in scores of variables and additionals; on the variables a projection."""
    for arity in (1, 3, 6):
        for ties in (False, True):
            p = random_problems(rng, factor_type, arity, 50, ties=ties)
            jacobian = jacobians(p, solve_compiled(p))
            np.testing.assert_allclose(jacobian, jacobian.transpose(0, 2, 1), rtol=0, atol=1e-14)
            block = jacobian[:, : p.a.shape[1], : p.a.shape[1]]
            np.testing.assert_allclose(block @ block, block, rtol=0, atol=1e-14)


def test_score_of_a_repulsive_pair_has_a_gradient():
    p = Problems(
        Pair, np.array([[0.9, 0.8]]), np.array([[-0.3]]), np.ones((1, 2)), np.empty((1, 0)), None
    )
    _, out_v = jvp_compiled(p, solve_compiled(p), np.zeros((1, 2)), np.ones((1, 1)))
    out_u, _ = jvp_compiled(p, solve_compiled(p), np.zeros((1, 2)), np.ones((1, 1)))
    np.testing.assert_array_equal(out_u, [[1.0, 1.0]])
    np.testing.assert_array_equal(out_v, [[2.0]])
