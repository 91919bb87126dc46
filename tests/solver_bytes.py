"""The memory that a local solver keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lpsmap_core import LocalSolver


def bytes_of(solver: LocalSolver) -> int:
    """Return the bytes of all arrays of a solver."""
    return sum({id(array): array.nbytes for array in _arrays(vars(solver))}.values())


def _arrays(value: Any) -> Iterator[np.ndarray]:
    """Yield an array, or those in a dictionary or a tuple."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (dict, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _arrays(part)
