"""Which vectors engines multiply with as they are."""

from __future__ import annotations

import numpy as np

from lpsmap_jit.arrays import FloatArray
from lpsmap_jit.compile import interpreted_by, leaf

__all__ = ["LEAST", "MOST", "are_ordinary", "are_ordinary_in_one_pass"]

LEAST, MOST = 1e-100, 1e100
"""Magnitudes whose squares, and what engines multiply these with, are numbers."""


def are_ordinary(d: FloatArray) -> bool:
    """Return whether all numbers of a vector are zero, or of magnitudes that need no scaling."""
    size = np.abs(d)
    return bool((((size >= LEAST) & (size <= MOST)) | (size == 0.0)).all())


@interpreted_by(are_ordinary)
@leaf
def are_ordinary_in_one_pass(d: FloatArray) -> bool:
    """Do the same with vector instructions, and without memory: a sixth of the time."""
    n_ordinary = 0
    for i in range(d.size):
        size = abs(d[i])
        n_ordinary += ((size >= LEAST) & (size <= MOST)) | (size == 0.0)
    return n_ordinary == d.size
