"""Derivatives of random graphs against the dense reference, additionals included."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from dense import DenseJacobian
from random_graphs import random_graph

FloatArray = npt.NDArray[np.float64]

SCALES = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0)

CLOSE = 1e-8
"""Allowed difference, as a multiple of what is found or 1."""


def difference(found: list[FloatArray], expected: list[FloatArray]) -> float:
    """Return the largest difference, relative to the expected number if that is above 1."""
    return max(
        float((np.abs(x - y) / np.maximum(1.0, np.abs(y))).max(initial=0.0))
        for x, y in zip(found, expected, strict=True)
    )


def check_products(seed: int) -> float:
    """Hold products of one graph against the dense ones; return the second eigenvalue of S."""
    rng = np.random.default_rng(seed)
    drawn = random_graph(rng, int(rng.integers(2, 13)), float(rng.choice(SCALES)))
    solution = drawn.build()[0].solve(tol=1e-10, max_iter=20_000)
    assert solution.ok, seed
    dense = DenseJacobian(solution)
    d = rng.normal(size=len(drawn.eta))
    d_v = [rng.normal(size=nu.shape) for nu in solution.additionals]
    nothing = [np.zeros_like(x) for x in d_v]
    for x, x_v in ((d, nothing), (np.zeros_like(d), d_v), (d, d_v)):
        expected, expected_v = dense(x, x_v)
        for product in (solution.vjp, solution.jvp):
            found, found_v = product(x, x_v)
            assert difference([found, *found_v], [expected, *expected_v]) <= CLOSE, seed
    alone, _ = solution.vjp(d)
    assert difference([alone], [dense(d, nothing)[0]]) <= CLOSE, seed
    return dense.second_eigenvalue


def test_products_are_the_dense_ones(draws: int) -> None:
    slowest = [check_products(seed) for seed in range(max(10, draws // 8))]
    assert max(slowest) > 0.9, "none of the draws was hard"


@pytest.mark.slow
def test_products_of_a_thousand_graphs_are_the_dense_ones() -> None:
    for seed in range(30_000, 31_000):
        check_products(seed)
