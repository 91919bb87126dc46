"""0/1 assignments as structures: the kernels that write them, and their labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core import Structures, leaf
from lpsmap_core.api import FloatArray

Assignment = tuple[int, ...]
"""The label of a structure: the values of the row's variables."""


@leaf
def best_variable(eta_u: FloatArray) -> int:
    """Return the variable with the highest score, the first of several."""
    best = 0
    for i in range(1, len(eta_u)):
        if eta_u[i] > eta_u[best]:
            best = i
    return best


@leaf
def write_single(r: int, k: int, structures: Structures) -> None:
    """Write the structure whose only nonzero is variable `k`."""
    at = structures.start[r]
    structures.entry[at], structures.value[at], structures.size[r] = k, 1.0, 1


@leaf
def write_positive(r: int, eta_u: FloatArray, structures: Structures) -> float:
    """Write the structure of all variables with positive scores; return the sum of these scores."""
    start, entry, value, size = structures
    n, total = 0, 0.0
    for i in range(len(eta_u)):
        if eta_u[i] > 0.0:
            entry[start[r] + n], value[start[r] + n] = i, 1.0
            total += eta_u[i]
            n += 1
    size[r] = n
    return total


def indicator(n: int, chosen: npt.ArrayLike) -> Assignment:
    """Return the assignment of `n` variables that turns on `chosen`."""
    y = np.zeros(n, dtype=np.int64)
    y[np.asarray(chosen, dtype=np.int64)] = 1
    return tuple(y.tolist())
