"""Types of arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["BoolArray", "FloatArray", "FloatTable", "IntArray"]

FloatArray = npt.NDArray[np.float64]
FloatTable = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
