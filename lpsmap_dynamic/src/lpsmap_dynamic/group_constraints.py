"""Linear constraints of factors with one choice in each group of slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpsmap_core import Factor, LinearConstraints


def one_of_each_group(factor: Factor, group_size: npt.ArrayLike) -> LinearConstraints:
    """Return constraints that exactly one slot of every group of consecutive slots is on.

    Parameters
    ----------
    factor
        The declaration.
    group_size
        Number of slots of a group for each factor, a divisor of the factor's number of slots.
    """
    arity = np.diff(factor.offsets)
    size = np.maximum(np.broadcast_to(np.asarray(group_size, dtype=np.int64), arity.shape), 1)
    n_groups = arity // size
    row = np.repeat(np.arange(n_groups.sum()), np.repeat(size, n_groups))
    return LinearConstraints(row, np.arange(len(row)), 1.0, np.ones(n_groups.sum()), 1.0)
