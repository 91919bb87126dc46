"""The largest magnitude of scores, and whether numbers are scores: neither NaN nor +inf."""

from __future__ import annotations

import numpy as np

from lpsmap_jit.arrays import FloatArray, IntArray
from lpsmap_jit.compile import leaf

_MAGNITUDE = np.int64(2**63 - 1)
"""All bits of a number but its sign."""


@leaf
def are_scores(values: FloatArray) -> bool:
    """Whether all values are less than +inf and not NaN."""
    wrong = 0
    for value in values:
        wrong += not value < np.inf  # a NaN is not less
    return wrong == 0


@leaf
def largest_magnitude(values: FloatArray) -> float:
    """Return the largest magnitude of some numbers: 0 for an empty array, NaN if one is NaN.

    The bits of floats, read as integers, have the order of the magnitudes. Compilers vectorize the
    comparison of integers, but not that of floats, which may be NaN.
    """
    most = np.int64(0)
    for bits in values.view(np.int64):
        most = max(most, bits & _MAGNITUDE)
    bits_of_most = np.int64(most)  # numba views only numbers that are assigned once
    magnitude: float = bits_of_most.view(np.float64)
    return magnitude


@leaf
def raise_to_largest(
    scores: FloatArray, offsets: IntArray, owner: IntArray, largest: FloatArray
) -> None:
    """Raise magnitudes to the largest of the finite scores of their spans."""
    for i, c in enumerate(owner):
        for j in range(offsets[i], offsets[i + 1]):
            magnitude = abs(scores[j])
            if magnitude < np.inf:  # a NaN is not less
                largest[c] = max(largest[c], magnitude)
