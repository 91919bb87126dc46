"""Linear constraints that describe the structures of factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lpsmap_core.model.inputs import checked_count, integer_array, kind_of
from lpsmap_jit.arrays import FloatArray, IntArray

if TYPE_CHECKING:  # declarations have constraints
    from lpsmap_core.model.factor import Factor


FIELDS = ("row", "column", "coefficient", "low", "high", "n_auxiliary")


class LinearConstraints:
    """Constraints ``low <= A x <= high`` on the structures of a declaration's factors.

    The entries of x are the declaration's slots, those of factor f from ``offsets[f]`` on, then its
    additionals, `n_additionals` for each factor, then auxiliary numbers, if any. All lie between 0
    and 1.

    Parameters
    ----------
    row, column, coefficient
        The entries of A other than 0.
    low, high
        A number for each row, or one for all; ``-inf`` or ``inf`` for no bound. If both are one
        number, the last row is the largest in `row`.
    n_auxiliary
        Number of auxiliary numbers.

    Raises
    ------
    TypeError
        If `row` or `column` is not of numbers, or `n_auxiliary` no count.
    ValueError
        If the entries of A differ in number, have a negative or fractional place or a row without
        bounds, or if a coefficient is not finite or a bound NaN.
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
        self.row: IntArray = integer_array("LinearConstraints: row", row)
        self.column: IntArray = integer_array("LinearConstraints: column", column)
        self.coefficient: FloatArray = np.broadcast_to(
            np.asarray(coefficient, dtype=np.float64), self.row.shape
        )
        self.low, self.high = np.broadcast_arrays(
            np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        )
        if not self.low.ndim:
            n_rows = self.row.max(initial=-1) + 1
            self.low, self.high = (np.full(n_rows, bound) for bound in (self.low, self.high))
        name = "LinearConstraints: n_auxiliary"
        self.n_auxiliary = checked_count(name, n_auxiliary, least=0)
        self._check()

    def _check(self) -> None:
        if self.row.ndim != 1 or self.row.shape != self.column.shape:
            raise ValueError(
                f"LinearConstraints: row, column: got shapes {self.row.shape} and "
                f"{self.column.shape}; expected one row and one column for each entry of A."
            )
        if self.low.ndim != 1:
            raise ValueError(
                f"LinearConstraints: low, high: got shape {self.low.shape}; expected a number for "
                "each row, or one for all."
            )
        n_rows, last = len(self.low), self.row.max(initial=-1)
        first = int(min(self.row.min(initial=0), self.column.min(initial=0)))
        if first < 0 or last >= n_rows:
            raise ValueError(
                f"LinearConstraints: row, column: got numbers from {first} on, rows up to {last}, "
                f"and bounds of {n_rows} rows; expected numbers from 0 on and bounds of all rows."
            )
        if not np.isfinite(self.coefficient).all() or np.isnan([self.low, self.high]).any():
            raise ValueError(
                "LinearConstraints: got a coefficient that is not finite, or a bound that is NaN; "
                "expected finite coefficients. Leave out a bound by -inf or inf."
            )

    @staticmethod
    def deferred(make: Callable[[], LinearConstraints]) -> LinearConstraints:
        """Return constraints that the function `make` builds on first access.

        Layouts collect the constraints of all declarations for every solve, without reading them.
        """
        return _Deferred(make)

    @classmethod
    def together(cls, *parts: LinearConstraints) -> LinearConstraints:
        """Return the rows of several constraints, `parts`, on the same entries."""
        first = np.cumsum([0, *(len(part.low) for part in parts)])
        return cls(
            np.concatenate([part.row + at for part, at in zip(parts, first, strict=False)]),
            np.concatenate([part.column for part in parts]),
            np.concatenate([part.coefficient for part in parts]),
            np.concatenate([part.low for part in parts]),
            np.concatenate([part.high for part in parts]),
            max(part.n_auxiliary for part in parts),
        )


class _Deferred(LinearConstraints):
    """Constraints that are built on first access."""

    def __init__(self, make: Callable[[], LinearConstraints]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(name)
        vars(self).update(vars(self._make()))
        return vars(self)[name]


def constraints_of(factor: Factor, name: str = "linear_constraints") -> LinearConstraints | None:
    """Return and validate the constraints of a declaration.

    Parameters
    ----------
    factor
        The declaration.
    name
        The name of the method that returns them.

    Raises
    ------
    TypeError
        If it returns neither constraints nor None.
    ValueError
        If a column is beyond the declaration's numbers.
    """
    found, method = getattr(factor, name)(), f"{type(factor).__name__}.{name}"
    if found is None:
        return None
    if not isinstance(found, LinearConstraints):
        raise TypeError(f"{method} returned {kind_of(found)}; expected LinearConstraints, or None.")
    n_slots, n_additionals = int(factor.offsets[-1]), factor.n_factors * factor.n_additionals
    last, n = found.column.max(initial=-1), n_slots + n_additionals + found.n_auxiliary
    if last >= n:
        raise ValueError(
            f"{method} returned column {last}; expected columns below {n}: {n_slots} slots, "
            f"{n_additionals} additionals and {found.n_auxiliary} auxiliary numbers."
        )
    return found


class CountBounds(_Deferred):
    """Bounds on the number of slots of each factor that are on: one row each, with entries 1.

    Parameters
    ----------
    offsets
        Factor ``f`` has the slots ``offsets[f]:offsets[f + 1]``.
    least, most
        A number for every factor, or one for all.
    """

    def __init__(self, offsets: IntArray, least: npt.ArrayLike, most: npt.ArrayLike) -> None:
        # without a reference to a method of its own, which would be a cycle of references
        self.offsets, self.least, self.most = offsets, least, most

    def _make(self) -> LinearConstraints:
        n, arity = len(self.offsets) - 1, np.diff(self.offsets)
        low = np.broadcast_to(np.asarray(self.least, dtype=np.float64), n)
        slots = np.arange(self.offsets[-1])
        return LinearConstraints(np.repeat(np.arange(n), arity), slots, 1.0, low, self.most)


@runtime_checkable
class PartlyConstrained(Protocol):
    """A factor type whose structures linear constraints describe incompletely."""

    def necessary_constraints(self) -> LinearConstraints:
        """Return constraints that all structures meet, and that other assignments may also meet."""


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
