"""Linear constraints on sums of a factor's slots."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.factor import Factor
from lpsmap_core.model.linear_constraints import CountBounds, LinearConstraints

__all__ = ["PartlyConstrained", "bounded_sums", "one_of_each_group"]


@runtime_checkable
class PartlyConstrained(Protocol):
    """A factor type whose structures linear constraints describe incompletely."""

    def necessary_constraints(self) -> LinearConstraints:
        """Return constraints that all structures meet, and that other assignments may also meet."""


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


def bounded_sums(
    factor: Factor,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> LinearConstraints:
    """Return constraints on the sum of every factor's slots.

    Parameters
    ----------
    factor
        The declaration.
    low, high
        A number for every factor, or one for all.
    weights
        A number for every slot, for a weighted sum. Solves start near the solution if all factors
        of the graph bound sums without weights.
    """
    if weights is None:
        return CountBounds(factor.offsets, low, high)
    rows = np.arange(factor.n_factors)
    low, high = (np.broadcast_to(x, factor.n_factors) for x in (low, high))
    slots = np.repeat(rows, np.diff(factor.offsets))
    return LinearConstraints(slots, np.arange(len(slots)), weights, low, high)
