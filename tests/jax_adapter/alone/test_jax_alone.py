"""The adapter to JAX on core and lpsmap_dynamic alone, without torch: factors have gradients."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lpsmap_core import Factor
from lpsmap_jax import sparse_map, sparse_map_loss


class ExactlyOne(Factor):
    """One variable is on."""

    def solve_map(self, eta_u: Any, eta_v: Any) -> int:
        return int(np.argmax(eta_u))

    def vertex(self, y: int) -> tuple[Any, Any]:
        return np.eye(self.event_shape[0])[y], np.zeros(0)


def test_gradients_reach_the_scores() -> None:
    scores = jnp.array([[0.9, 0.7, 0.1], [0.3, 0.2, -4.0]])
    solve = jax.jit(sparse_map(ExactlyOne))
    np.testing.assert_allclose(solve(scores)[1], [0.55, 0.45, 0.0], atol=1e-6)
    slopes = jax.grad(lambda x: solve(x)[1, 0])(scores)
    np.testing.assert_allclose(slopes, [[0.0] * 3, [0.5, -0.5, 0.0]], atol=1e-6)


def test_the_loss() -> None:
    slopes = jax.grad(sparse_map_loss(ExactlyOne))(jnp.array([[0.3, 0.2, -4.0]]), jnp.array([0]))
    np.testing.assert_allclose(slopes, [[-0.45, 0.45, 0.0]], atol=1e-6)


def test_torch_is_not_imported() -> None:
    program = "import sys; sys.modules['torch'] = None; import lpsmap_jax"
    subprocess.run([sys.executable, "-c", program], check=True)
