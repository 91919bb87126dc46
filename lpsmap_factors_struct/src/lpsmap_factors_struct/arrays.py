"""NumPy operations for leaves. Those of numba allocate memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import leaf

__all__ = ["copy", "largest"]


@leaf
def copy(source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Copy `source` to the beginning of `target`, which does not overlap it."""
    for i in range(len(source)):
        target[i] = source[i]


@leaf
def largest(numbers: npt.NDArray[np.float64]) -> float:
    """Return the largest number, or -inf if the array is empty."""
    best = -np.inf
    for x in numbers:
        best = max(best, x)
    return best
