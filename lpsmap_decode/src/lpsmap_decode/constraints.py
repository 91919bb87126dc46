"""Linear constraints of declarations: which are known, over which variables, in which rows."""

from __future__ import annotations

import numpy as np

from lpsmap_core import Factor, LinearConstraints
from lpsmap_core.api import BoolArray, FloatArray, IntArray, PartlyConstrained, slot_values

__all__ = ["known_constraints", "of_variables", "summed"]


def known_constraints(
    factor: Factor, with_additionals: bool = True
) -> tuple[LinearConstraints | None, bool]:
    """Return constraints that all structures of a declaration meet, and whether they are exact.

    Without additionals, those on variables alone are preferred.
    """
    exact = factor.linear_constraints()
    is_exact = exact is not None and not exact.n_auxiliary
    if isinstance(factor, PartlyConstrained) and (exact is None or not with_additionals):
        return factor.necessary_constraints(), is_exact
    return exact, is_exact


def of_variables(factor: Factor, given: LinearConstraints) -> tuple[LinearConstraints, IntArray]:
    """Return constraints in terms of variables, and the variable of each slot.

    A negated slot is 1 minus its variable.
    """
    slots = np.zeros(
        int(factor.offsets[-1]) + factor.n_factors * factor.n_additionals + given.n_auxiliary, bool
    )
    slots[: factor.offsets[-1]] = slot_values(factor, factor.variables.negated)
    flipped: BoolArray = slots[given.column]
    shift = np.bincount(
        given.row, np.where(flipped, given.coefficient, 0.0), minlength=len(given.low)
    )
    mirrored = LinearConstraints(
        given.row,
        given.column,
        np.where(flipped, -given.coefficient, given.coefficient),
        given.low - shift,
        given.high - shift,
        given.n_auxiliary,
    )
    return mirrored, slot_values(factor, factor.variables.index)


def summed(
    row: IntArray, column: IntArray, coefficient: FloatArray, n_columns: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return entries by row, summing duplicates: a variable may fill several slots of a factor."""
    places, which = np.unique(row * n_columns + column, return_inverse=True)
    total = np.bincount(which.reshape(-1), coefficient, len(places)).astype(np.float64)
    return places // n_columns, places % n_columns, total
