"""Subclasses with other structures in JAX: they are not solved as their base."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lpsmap import AtMostOne, DepTree, Or, Xor
from lpsmap_jax import sparse_map
from other_structures import Plain, other, unchanged


@pytest.mark.parametrize("base", [Xor, Or, AtMostOne, DepTree])
def test_values_and_gradients(base: Any) -> None:
    scores = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))

    def plain(u: Any) -> Any:
        return Plain(u.reshape(1, 16) if base is DepTree else u)

    def results(factors: Any) -> Any:
        solve = sparse_map(factors)
        return solve(scores), jax.grad(lambda s: (solve(s) * jnp.arange(4.0)).sum())(scores)

    for one, two in zip(results(other(base)), results(plain), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)
    for one, two in zip(results(unchanged(base)), results(base), strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.abs(results(other(base))[0] - results(base)[0]).max() > 0.01
