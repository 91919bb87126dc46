"""The range of vectors that engines multiply with without scaling."""

from __future__ import annotations

import numpy as np

from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.compile import leaf

__all__ = ["MAX_UNSCALED", "MIN_UNSCALED", "need_no_scaling", "need_no_scaling_compiled"]

MIN_UNSCALED, MAX_UNSCALED = 1e-100, 1e100
"""Magnitudes whose squares, times the factors that engines use, neither underflow nor overflow."""


def need_no_scaling(d: FloatArray) -> bool:
    """Return whether every number of a vector is zero or within the unscaled range."""
    size = np.abs(d)
    return bool((((size >= MIN_UNSCALED) & (size <= MAX_UNSCALED)) | (size == 0.0)).all())


@leaf
def need_no_scaling_compiled(d: FloatArray) -> bool:
    """Compute `need_no_scaling` in one pass without temporary arrays, in a sixth of the time."""
    n_ordinary = 0
    for i in range(d.size):
        size = abs(d[i])
        n_ordinary += ((size >= MIN_UNSCALED) & (size <= MAX_UNSCALED)) | (size == 0.0)
    return n_ordinary == d.size
