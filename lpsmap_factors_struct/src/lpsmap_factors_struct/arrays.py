"""NumPy operations for leaves. Those of numba allocate memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core import leaf
from lpsmap_core.api import FloatArray


@leaf
def copy(source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Copy `source` to the beginning of `target`, which does not overlap it."""
    for i in range(len(source)):
        target[i] = source[i]


@leaf
def largest(numbers: FloatArray) -> float:
    """Return the largest number, or -inf if the array is empty."""
    best = -np.inf
    for x in numbers:
        best = max(best, x)
    return best


@leaf
def first_maximum(values: FloatArray, begin: int, end: int) -> int:
    """Return the first position of the largest number in ``begin:end``."""
    row = values[begin:end]
    n = len(row)
    a = b = c = d = row[0]
    whole = n - n % 4
    for i in range(0, whole, 4):  # four independent chains of comparisons run in parallel
        a = row[i] if row[i] > a else a
        b = row[i + 1] if row[i + 1] > b else b
        c = row[i + 2] if row[i + 2] > c else c
        d = row[i + 3] if row[i + 3] > d else d
    for i in range(whole, n):
        a = row[i] if row[i] > a else a
    most = max(max(a, b), max(c, d))
    place = 0
    while place < n - 1 and row[place] != most:  # the bound matters if a number is NaN
        place += 1
    return begin + place
