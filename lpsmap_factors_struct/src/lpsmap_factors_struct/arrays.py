"""Copying between arrays that do not overlap, which numba's own assignment cannot know."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from lpsmap_core.compile import leaf

__all__ = ["copy"]


@leaf
def copy(source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Write an array's numbers to the first places of another."""
    for i in range(len(source)):
        target[i] = source[i]
