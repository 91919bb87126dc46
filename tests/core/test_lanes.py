"""Four numbers at once: compiled and interpreted, they are NumPy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lpsmap_core import leaf
from lpsmap_core.kernels import tiers
from lpsmap_core.kernels.lanes import LANES, subtract_lanes

pytestmark = pytest.mark.compiled

IN_PYTHON = pytest.param(
    getattr(subtract_lanes, "interpreted", subtract_lanes),
    marks=pytest.mark.skipif(not tiers.CAN_INTERPRET, reason="interpreted kernels need NumPy 2"),
)


@leaf
def subtract_between(x, target, source, share):
    subtract_lanes(x, np.uint64(target), np.uint64(source), share)


@pytest.mark.parametrize("subtract", [subtract_lanes, IN_PYTHON, subtract_between])
def test_lanes_are_numbers_side_by_side(
    subtract: Callable[..., None], rng: np.random.Generator
) -> None:
    """Wherever they begin, and others stay as they are."""
    for target, source in [(0, 4), (5, 0), (7, 11), (12, 3)]:
        x = rng.standard_normal(12 + LANES)
        expected = x.copy()
        expected[target : target + LANES] -= 0.3 * x[source : source + LANES]
        subtract(x, np.uint64(target), np.uint64(source), 0.3)
        np.testing.assert_array_equal(x, expected)
