"""What NumPy has, for leaves: numba's own versions allocate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import leaf

__all__ = ["copy", "largest"]


@leaf
def copy(source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Write an array's numbers to the first places of another, which does not overlap it."""
    for i in range(len(source)):
        target[i] = source[i]


@leaf
def largest(numbers: npt.NDArray[np.float64]) -> float:
    """Return the largest of some numbers, -inf for none."""
    best = -np.inf
    for x in numbers:
        best = max(best, x)
    return best
