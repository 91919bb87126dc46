"""Factors with forced variables."""

from __future__ import annotations

import numpy as np

from lpsmap_core import leaf
from lpsmap_core.api import LocalProblem


@leaf
def has_forced(f: int, problem: LocalProblem) -> bool:
    """Return whether a variable of a factor must be on."""
    for slot in range(problem.offsets[f], problem.offsets[f + 1]):
        if problem.a[slot] == np.inf:
            return True
    return False
