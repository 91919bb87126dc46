"""Factors as tables over multi-valued variables, for ``lpsmap-decode``."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factors
from lpsmap_dynamic import Tables


def one_block(factors: Factors, always: bool) -> Tables:
    """Return every row as a single variable with a state for each slot.

    Parameters
    ----------
    factors
        All factors of a bucket.
    always
        Whether one slot is always on. Otherwise the variable has one more state.
    """
    arity = np.diff(factors.offsets)
    most = int(arity.max(initial=0)) + (not always)
    first_entry, n_blocks = np.zeros(len(arity), np.int64), np.ones(len(arity), np.int64)
    return Tables(n_blocks, arity, always, first_entry, np.zeros(most), np.full(most, -1))
