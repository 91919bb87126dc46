"""Settings of the tests of the JAX adapter."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Allow float64 arrays, which tests compare up to rounding."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)
