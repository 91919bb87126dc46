"""Types of the flat arrays of kernels."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.int8]
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.int64]

FloatTable = Annotated[FloatArray, 2]
"""An array of two axes; the annotation matters only in records."""
IntTable = Annotated[IntArray, 2]
