"""Factors as linear constraints: what solvers of whole graphs are told of a type."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lpsmap_core.kernels.arrays import FloatArray, IntArray
from lpsmap_core.model.factor import Factor

__all__ = [
    "LinearConstraints",
    "LinearlyConstrained",
    "PartlyConstrained",
    "bounded_sums",
    "constraints_of",
    "one_of_each_group",
]


class LinearConstraints:
    """Constraints ``low <= A x <= high`` that hold for the structures of a declaration's factors.

    The entries of x are the declaration's slots, in the order of `Factor.links`, then its
    additionals, factor by factor, then auxiliary numbers if the description needs some. All lie
    between 0 and 1. With whole slots the constraints must allow the structures and nothing else,
    with their additionals. The nearer the allowed fractions are to the hull of the structures, the
    faster the solvers.

    Parameters
    ----------
    row, column, coefficient
        The entries of A other than 0.
    low, high
        A number for each row, ``-inf`` or ``inf`` for no bound; one number stands for all.
    n_auxiliary
        How many auxiliary numbers there are.
    """

    def __init__(
        self,
        row: npt.ArrayLike,
        column: npt.ArrayLike,
        coefficient: npt.ArrayLike,
        low: npt.ArrayLike,
        high: npt.ArrayLike,
        n_auxiliary: int = 0,
    ) -> None:
        self.row: IntArray = np.asarray(row, dtype=np.int64)
        self.column: IntArray = np.asarray(column, dtype=np.int64)
        self.coefficient: FloatArray = np.broadcast_to(
            np.asarray(coefficient, dtype=np.float64), self.row.shape
        )
        self.low, self.high = np.broadcast_arrays(
            np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        )
        self.n_auxiliary = n_auxiliary

    @classmethod
    def together(cls, *parts: LinearConstraints) -> LinearConstraints:
        """Return all rows of several constraints, `parts`, on the same entries."""
        first = np.cumsum([0, *(len(part.low) for part in parts)])
        return cls(
            np.concatenate([part.row + at for part, at in zip(parts, first, strict=False)]),
            np.concatenate([part.column for part in parts]),
            np.concatenate([part.coefficient for part in parts]),
            np.concatenate([part.low for part in parts]),
            np.concatenate([part.high for part in parts]),
            max(part.n_auxiliary for part in parts),
        )


@runtime_checkable
class LinearlyConstrained(Protocol):
    """A factor type whose structures linear constraints describe."""

    def linear_constraints(self) -> LinearConstraints:
        """Return constraints on the structures of all factors of the declaration."""


@runtime_checkable
class PartlyConstrained(Protocol):
    """A factor type of which linear constraints describe the structures in part."""

    def necessary_constraints(self) -> LinearConstraints:
        """Return constraints that all structures meet, and other assignments may meet, too."""


def constraints_of(factor: Factor) -> LinearConstraints | None:
    """Return constraints that all structures of a declaration meet, or None if none are known."""
    if isinstance(factor, LinearlyConstrained):
        return factor.linear_constraints()
    if isinstance(factor, PartlyConstrained):
        return factor.necessary_constraints()
    return None


def one_of_each_group(factor: Factor, group_size: npt.ArrayLike) -> LinearConstraints:
    """Return constraints by which one slot of every group of consecutive ones is on.

    Parameters
    ----------
    factor
        The declaration.
    group_size
        The number of slots of a group, a divisor of the factor's: one for each factor.
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
    weights: npt.ArrayLike = 1.0,
) -> LinearConstraints:
    """Return constraints on the weighted sum of every factor's slots.

    Parameters
    ----------
    factor
        The declaration.
    low, high
        A number for every factor, or one for all.
    weights
        A number for every slot, or one for all.
    """
    rows = np.arange(factor.n_factors)
    low, high = (np.broadcast_to(x, factor.n_factors) for x in (low, high))
    slots = np.repeat(rows, np.diff(factor.offsets))
    return LinearConstraints(slots, np.arange(len(slots)), weights, low, high)
